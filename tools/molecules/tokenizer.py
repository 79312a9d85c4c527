"""Tokenizer of the molecule model."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pine_engine.lab.molecules.request_rows import PROPERTIES

UNKNOWN, START, END, PADDING = "<unk>", "<s>", "</s>", "<pad>"
CANONICAL, ANY_SPELLING = "<smiles>", "<spelling>"
"""Separators before the SMILES: canonical, or any other spelling. Only training uses the second one."""

ITEM_END = "* "
CHARACTERS = "0123456789.-+* CNOFHcno[]()=#/\\@"
CHAT_TEMPLATE = (
    f"{START}{{% for message in messages %}}{{{{ message['content'] }}}}{{% endfor %}}"
    f"{{% if add_generation_prompt %}}{CANONICAL}{{% endif %}}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: one token per property name and per character of numbers and SMILES.

    Numbers are truncated after the second decimal, so that the model cannot identify molecules by the last
    digits. A prompt is a start token, six items such as `gap*7.86* `, and a separator.
    """
    control = (UNKNOWN, START, END, PADDING, CANONICAL, ANY_SPELLING)
    names = [f"{name}*" for name in PROPERTIES]
    vocabulary = {token: index for index, token in enumerate([*control, *names, ITEM_END, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Replace(Regex(r"(?<=\.\d\d)\d+"), "")
    pattern = rf"(?:{'|'.join(PROPERTIES)})\*|\* |[\s\S]"
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=PADDING, unk_token=UNKNOWN,
        chat_template=CHAT_TEMPLATE, clean_up_tokenization_spaces=False,
    )  # fmt: skip
