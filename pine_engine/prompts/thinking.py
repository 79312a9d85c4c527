"""Thinking part of an answer: the text between two markers, before the answer; see specification 9.7."""

import re
from collections.abc import Container
from typing import Any, NamedTuple


class Markers(NamedTuple):
    """Texts around the thinking part."""

    start: str
    end: str
    label: str = ""  # regular expression of further control text in the thinking part, which is not shown


THINKING_MARKERS = (
    Markers("<think>", "</think>"),  # Qwen 3, DeepSeek, GLM, SmolLM3, Nemotron, MiniMax, Phi 4, OLMo 3
    Markers(  # gpt-oss
        "<|channel|>",
        "<|channel|>final<|message|>",
        r"<\|channel\|>|\b(analysis|commentary)<\|message\|>|<\|end\|>|<\|start\|>assistant",
    ),
    Markers("<|channel>", "<channel|>", r"^thought\n"),  # Gemma 4
    Markers("[THINK]", "[/THINK]"),  # Magistral, Ministral 3
    Markers("<seed:think>", "</seed:think>"),  # Seed-OSS
    Markers("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    Markers("◁think▷", "◁/think▷"),  # Kimi
)
"""Markers of model families. Those of a model are the first that its chat template or vocabulary has."""


class SplitAnswer(NamedTuple):
    """Generated text in two parts."""

    thinking: str
    text: str  # the answer: text after the thinking part
    is_finished: bool = True  # False if the text ends inside its thinking part, so that there is no answer


NOTHING_GENERATED = SplitAnswer("", "")


def find_markers(tokenizer: Any, added_tokens: Container[str] = ()) -> Markers | None:
    """Return the markers in the chat template, or else those among the added tokens, None without any."""
    templates = getattr(tokenizer, "chat_template", None) or ""
    source = templates if isinstance(templates, str) else "".join(map(str, templates.values()))
    places = (source, added_tokens)
    pairs = ((each, place) for place in places for each in THINKING_MARKERS)
    return next((each for each, place in pairs if each.start in place or each.end in place), None)


def split_thinking(text: str, markers: Markers | None, *, begins_inside: bool = False) -> SplitAnswer:
    """Return the thinking part and the answer in a generated text with its control tokens.

    The text begins inside the thinking part if the prompt ends with the start marker.
    """
    if markers is None or not text.strip():
        return SplitAnswer("", text if markers is None else "", not begins_inside)
    start, beginning = markers.start, text.lstrip()
    thinking, end, answer = text.partition(markers.end)
    # While a text is generated, it may end inside a marker.
    is_open = begins_inside or beginning.startswith(start) or start.startswith(beginning)
    if not end and not is_open:
        return SplitAnswer("", text)
    thinking = "" if start.startswith(thinking.strip()) else thinking.lstrip().removeprefix(start)
    return SplitAnswer(re.sub(markers.label, "", thinking).strip(), answer.lstrip(), bool(end))
