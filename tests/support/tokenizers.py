"""Tiny tokenizers with a few control tokens."""

from collections.abc import Sequence
from datetime import date
from typing import Any, Literal

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from pine_engine.prompts import chat_templates

CONTROL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

THINKING = CHAT_TEMPLATE.replace(
    "assistant\n{% endif %}",
    "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}",
)
"""Template with an argument, as that of Qwen 3."""

DATED = "{{ strftime_now('%d %b %Y') }}\n" + CHAT_TEMPLATE

IN_PARTS = CHAT_TEMPLATE.replace(
    "{{ message['content'] | trim }}",
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] | trim }}{% endif %}"
    "{% endfor %}",
)
"""Template that reads content as a list of parts, as those of models with images."""


def on_day(day: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the date of today, in ISO format, for chat templates."""
    today = type("date", (date,), {"today": staticmethod(lambda: date.fromisoformat(day))})
    monkeypatch.setattr(chat_templates, "date", today)


def _fast(tokenizer: Tokenizer, chat_template: str | None, **options: Any) -> PreTrainedTokenizerFast:
    tokens = {"bos_token": "<s>", "eos_token": "</s>", **options}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=chat_template, **tokens)


def letter_tokenizer(
    *, chat_template: str | None = CHAT_TEMPLATE, unmarked: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of 5 control tokens and one token per ASCII character; unmarked: as below."""
    letters = ["\n", *map(chr, range(32, 123))]
    vocabulary = {name: index for index, name in enumerate([*CONTROL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in unmarked])
    return _fast(tokenizer, chat_template, pad_token="<pad>")


def byte_tokenizer(
    *,
    chat_template: str | None = CHAT_TEMPLATE,
    unmarked: Sequence[str] = (),
    special: Sequence[str] = (),
    adds_bos: bool = False,
    adds_eos: bool = False,
) -> PreTrainedTokenizerFast:
    """Return a tokenizer of 5 control tokens and one token per byte, which encodes any text exactly.

    unmarked: added tokens that are not marked as special. special: further special tokens. adds_bos: add <s>
    at the start, as Llama's tokenizers do. adds_eos: add </s> at the end.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {name: index for index, name in enumerate([*CONTROL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    marked = [AddedToken(name, special=True, normalized=False) for name in (*CONTROL, *special)]
    tokenizer.add_special_tokens(marked)
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in unmarked])
    parts = [*(["<s>"] if adds_bos else []), "$A", *(["</s>"] if adds_eos else [])]
    tokenizer.post_processor = processors.TemplateProcessing(parts, special_tokens=[("<s>", 1), ("</s>", 2)])
    return _fast(tokenizer, chat_template, pad_token="<pad>", clean_up_tokenization_spaces=False)


BLANK = "▁"

Blanks = Literal["prepend", "metaspace"]
"""Part of a tokenizer that adds a blank at the start of a text."""


def sentencepiece_tokenizer(
    kind: Blanks, *, chat_template: str | None = None, merges: Sequence[tuple[str, str]] = ()
) -> PreTrainedTokenizerFast:
    """Return a tokenizer like that of Llama-2: it adds a blank and <s> at the start, and has byte tokens.

    kind: "prepend" normalizes like Llama-2, "metaspace" splits like newer conversions of it.
    merges: pairs of tokens that are merged, besides those that make " the" one token.
    """
    letters = [BLANK, *"abcdefghijklmnopqrstuvwxyz.:?", "\n"]
    pairs = [(BLANK, "a"), (BLANK, "t"), ("t", "h"), (f"{BLANK}t", "h"), (f"{BLANK}th", "e")]
    pairs += merges
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    names += ["".join(pair) for pair in pairs]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(BLANK, prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return _fast(tokenizer, chat_template, unk_token="<unk>", clean_up_tokenization_spaces=False)
