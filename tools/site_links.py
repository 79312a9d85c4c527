"""Hook of mkdocs: add pictures of assets/ to the site; other links out of docs/ lead to the repository."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PICTURES = ("assets/shuffle.gif", "assets/curves.png")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pictures to the files of the site.

    Args:
        files: Files of the site.
        config: Configuration of mkdocs.
    """
    for name in PICTURES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, config: Any, **_: Any) -> str:
    """Return the Markdown of a page, in which all links lead to files of the site or to other sites.

    Args:
        markdown: Source of the page.
        config: Configuration of mkdocs, with the address of the repository.
    """
    for name in PICTURES:
        markdown = markdown.replace(f"](../{name})", f"]({name})")
    return re.sub(r"\]\(\.\./([^)]+)\)", rf"]({config['repo_url']}/blob/main/\1)", markdown)
