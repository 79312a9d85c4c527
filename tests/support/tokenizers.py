"""Tiny tokenizers made on the spot, with a few control tokens each."""

from collections.abc import Sequence
from typing import Literal

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast

CONTROL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def letter_tokenizer(
    *, chat_template: str | None = CHAT_TEMPLATE, unmarked_control: str | None = None
) -> PreTrainedTokenizerFast:
    """Ids 0 to 4 are control tokens, then one id per ASCII character; 97 or fewer ids for letters.

    unmarked_control: a token that is added without being marked special, as some tokenizers have them.
    """
    letters = ["\n", *map(chr, range(32, 123))]
    vocabulary = {name: index for index, name in enumerate([*CONTROL, *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in CONTROL])
    if unmarked_control:
        tokenizer.add_tokens([AddedToken(unmarked_control, special=False, normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=chat_template,
    )


def byte_tokenizer(
    *,
    chat_template: str | None = CHAT_TEMPLATE,
    unmarked: Sequence[str] = (),
    special: Sequence[str] = (),
    adds_bos: bool = False,
    adds_eos: bool = False,
) -> PreTrainedTokenizerFast:
    """One id per byte, so that any text can be encoded and decoded exactly; ids below 5 are CONTROL.

    unmarked: tokens added without being marked special. special: more that are marked. adds_bos: puts <s>
    in front, as Llama's tokenizers do. adds_eos: puts </s> behind.
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
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


BLANK = "▁"

Blanks = Literal["prepend", "metaspace"]
"""The part of a tokenizer that puts a blank in front of a text."""


def sentencepiece_tokenizer(
    kind: Blanks,
    *,
    chat_template: str | None = None,
    merges: Sequence[tuple[str, str]] = (),
) -> PreTrainedTokenizerFast:
    """As Llama-2's: puts a dummy blank in front of every text, knows bytes, adds <s>.

    kind: "prepend" normalises as Llama-2 does, "metaspace" splits as newer conversions of it do.
    merges: pairs of tokens that join into one, besides those that make " the" one token.
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
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )
