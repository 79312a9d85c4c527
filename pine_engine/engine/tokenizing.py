"""Between text and token ids, by the tokenizer of one model: prompts and answers in, tokens and texts out."""

import threading
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.errors import InputError
from pine_engine.given import in_words, sequence, whole_numbers
from pine_engine.prompts.layout import TOKEN_IDS, TokenLayout, check_vocabulary, tokenize, tokenize_text
from pine_engine.prompts.prompt import HOW_TO_PROMPT, Prompt


class Tokenizing:
    """A tokenizer, or None for prompts of tokens alone, and how many token ids its model knows.

    lock: held while text is encoded. Encoding text as data flips a setting of the tokenizer for the time of
    the call, which threads must not see of each other.
    """

    def __init__(self, tokenizer: Any, model: PreTrainedModel) -> None:
        """Raises InputError for what is no tokenizer."""
        if tokenizer is not None and not hasattr(tokenizer, "get_added_vocab"):
            raise InputError(
                f"the tokenizer is {in_words(tokenizer)}; give one that transformers has loaded, as by "
                "AutoTokenizer.from_pretrained(name)"
            )
        self.tokenizer = tokenizer
        self.lock = threading.Lock()
        self._model = model

    @property
    def vocabulary_size(self) -> int:
        """How many token ids the model has an embedding for."""
        try:
            weight = cast(Tensor, self._model.get_input_embeddings().weight)
        except (AttributeError, NotImplementedError):  # somebody's own: without one weight, or not told
            return int(self._model.config.get_text_config().vocab_size)
        return weight.shape[0]

    def prompt(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """See Engine.tokenize."""
        if isinstance(prompt, TokenLayout):
            prompt.check_vocabulary(self.vocabulary_size)
            return prompt
        if not isinstance(prompt, Prompt):
            raise InputError(f"the prompt is {in_words(prompt)}; {HOW_TO_PROMPT}")
        tokenizer = self._needed_tokenizer("read a prompt of text")
        with self.lock:
            return tokenize(prompt, tokenizer)

    def answer(self, text: str) -> tuple[int, ...]:
        """See Engine.tokenize_answer."""
        tokenizer = self._needed_tokenizer("score text")
        if not isinstance(text, str):
            raise InputError(f"the answer is {in_words(text)}; give text")
        with self.lock:
            ids = tokenize_text(text, tokenizer)
        if not ids:
            raise InputError(f"the answer {text!r} has no tokens; give some text")
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """See Engine.decode_text."""
        if self.tokenizer is None:
            return ""
        text: str = self.tokenizer.decode(self._known_ids(ids), skip_special_tokens=True)
        # A character whose bytes are not all there yet decodes to the replacement character.
        return text.rstrip("\ufffd")

    def texts(self, ids: Sequence[int]) -> list[str]:
        """See Engine.decode_tokens."""
        tokenizer = self._needed_tokenizer("tell the text of tokens")
        return [tokenizer.decode([token]) for token in self._known_ids(ids)]

    def _needed_tokenizer(self, why: str) -> Any:
        if self.tokenizer is None:
            raise InputError(
                f"this engine has no tokenizer to {why}; make it with Engine(model, tokenizer), or give "
                "TokenLayout(prefix, documents, suffix) of token ids"
            )
        return self.tokenizer

    def _known_ids(self, ids: Any) -> tuple[int, ...]:
        """Token ids given in any sequence, or a single one. Raises InputError for those that are none."""
        given = (ids,) if sequence(ids) is None else ids
        known = whole_numbers(given, "what is decoded", TOKEN_IDS)
        check_vocabulary("what is decoded", known, self.vocabulary_size)
        return known
