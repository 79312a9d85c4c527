"""Thinking part of an answer: markers of families, text while it is generated, and unfinished answers."""

import pytest
from hypothesis import given, strategies as st

from pine_engine.prompts.thinking import THINKING_MARKERS, SplitAnswer, find_markers, split_thinking
from tests.support.tokenizers import CHAT_TEMPLATE, DATED, byte_tokenizer

THINK = THINKING_MARKERS[0]


def split(text: str, *, begins_inside: bool = False) -> SplitAnswer:
    return split_thinking(text, THINK, begins_inside=begins_inside)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nWho?\n</think>\n\nAnna", SplitAnswer("Who?", "Anna")),
        ("Who?</think>Anna", SplitAnswer("Who?", "Anna")),  # DeepSeek R1 leaves out the start marker
        ("<think>\n\n</think>\n\nAnna", SplitAnswer("", "Anna")),
        ("<think>a</think>b</think>c", SplitAnswer("a", "b</think>c")),
        ("<think>Who", SplitAnswer("Who", "", is_finished=False)),
        ("<think>Who</think>", SplitAnswer("Who", "")),
        ("  Anna <think> ", SplitAnswer("", "  Anna <think> ")),  # no thinking part
        ("", SplitAnswer("", "")),
    ],
)
def test_answer_begins_after_the_end_marker(text: str, expected: SplitAnswer) -> None:
    assert split(text) == expected


def test_answer_may_begin_inside_its_thinking() -> None:
    assert split("Who", begins_inside=True) == SplitAnswer("Who", "", is_finished=False)
    assert split("", begins_inside=True) == SplitAnswer("", "", is_finished=False)
    assert split("Who</think>Anna", begins_inside=True) == split("<think>Who</think>Anna")


def test_model_without_markers_has_no_thinking() -> None:
    text = "<think>Who</think>Anna"
    assert split_thinking(text, find_markers(byte_tokenizer())) == SplitAnswer("", text)


GPT_OSS = "<|channel|>analysis<|message|>Who?<|end|><|start|>assistant<|channel|>final<|message|>Anna"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("<|start|>assistant<|channel|>final<|message|>", GPT_OSS),
        ("<|channel>thought\n<channel|>", "<|channel>thought\nWho?<channel|>Anna"),  # Gemma 4
        ("[THINK]", "[THINK]Who?[/THINK]Anna"),
        ("{{ x.split('</seed:think>') }}", "<seed:think>Who?</seed:think>Anna"),
        ("<|START_THINKING|>", "<|START_THINKING|>Who?<|END_THINKING|>Anna"),
        ("◁think▷", "◁think▷Who?◁/think▷Anna"),
    ],
)
def test_markers_are_those_of_the_template(template: str, text: str) -> None:
    tokenizer = byte_tokenizer(chat_template=template)
    assert split_thinking(text, find_markers(tokenizer)) == SplitAnswer("Who?", "Anna")
    tokenizer.chat_template = {"default": "", "thinking": template}
    assert find_markers(tokenizer) is not None


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, DATED, None])
def test_other_templates_have_no_markers(template: str | None) -> None:
    assert find_markers(byte_tokenizer(chat_template=template)) is None


def test_final_channel_alone_is_an_answer() -> None:
    markers = find_markers(byte_tokenizer(chat_template="<|channel|>"))
    assert split_thinking("<|channel|>final<|message|>Anna", markers) == SplitAnswer("", "Anna")
    unfinished = split_thinking(GPT_OSS.partition("<|channel|>final")[0], markers)
    assert unfinished == SplitAnswer("Who?", "", is_finished=False)


@given(st.text(st.sampled_from("ab <"), max_size=12), st.text("ab", min_size=1, max_size=4))
def test_shown_text_only_grows(thinking: str, answer: str) -> None:
    """A prefix of a generated text shows a prefix of its answer, also within a marker."""
    whole = f"<think>{thinking}</think>{answer}"
    for end in range(len(whole)):
        part = split(whole[:end])
        assert answer.startswith(part.text)
        assert part.is_finished is (end >= len(whole) - len(answer)) or end == 0
