"""A tiny tokenizer made on the spot: one token per character, and a few control tokens."""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
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
