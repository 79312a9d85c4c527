"""Parser of the HTML of viz: elements, attributes and table cells."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

from viz.drawing.pictures import Numbers


@dataclass
class Element:
    """An HTML element with its texts and elements, in their order."""

    tag: str
    attributes: dict[str, str]
    parts: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def children(self) -> list["Element"]:
        return [part for part in self.parts if isinstance(part, Element)]

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def walk(self) -> Iterator["Element"]:
        for child in self.children:
            yield child
            yield from child.walk()

    def all(self, tag: str) -> list["Element"]:
        return [element for element in self.walk() if element.tag == tag]

    def with_class(self, name: str) -> list["Element"]:
        return [element for element in self.walk() if name in element.classes]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack = [Element("root", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.stack[-1].parts.append(element)
        if tag not in ("br", "hr", "img", "input", "meta"):
            self.stack.append(element)

    def handle_endtag(self, tag: str) -> None:
        element = self.stack.pop()
        assert element.tag == tag, f"</{tag}> closes <{element.tag}>"

    def handle_data(self, data: str) -> None:
        self.stack[-1].parts.append(data)


def read_html(html: str) -> Element:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert len(reader.stack) == 1, [element.tag for element in reader.stack]
    return reader.stack[0]


def table_cells(table: Element) -> list[list[Element]]:
    return [row.all("td") for body in table.all("tbody") for row in body.all("tr")]


HOSTILE = (
    "<img src=x onerror=alert(1)>", "<|im_end|>", "{{7*7}}", "${x}", "\"'><script>alert(1)</script>",
    "</td></table>",
)  # fmt: skip


def assert_harmless(html: str) -> None:
    """Fail if the HTML has an element or attribute that no template writes."""
    for element in read_html(html).walk():
        assert element.tag not in ("img", "script", "iframe", "a", "foreignobject", "form"), element
        assert not [name for name in element.attributes if name.startswith("on")], element


_NUMBERS = re.compile(r'<div class="pine-numbers"[^>]*>(.*?)</div>', re.DOTALL)


def picture_numbers(html: str) -> list[Numbers]:
    """Return the numbers of every picture in some HTML."""
    return [
        Numbers(
            tuple(content["columns"]), tuple(map(tuple, content["rows"])), content["name"], content["caption"]
        )
        for content in map(json.loads, _NUMBERS.findall(html))
    ]
