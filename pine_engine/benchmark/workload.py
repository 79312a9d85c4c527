"""Size of a benchmark: a prompt of random tokens and an answer of fixed length. Loads without torch."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pine_engine.errors import InputError

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.prompts.layout import TokenLayout

PREFIX_TOKENS = 30
SUFFIX_TOKENS = 28

Sweep = Literal["tokens", "documents"]

SWEEP_SIZES: dict[Sweep, tuple[int, ...]] = {
    "tokens": (1024, 2048, 4096, 8192),
    "documents": (2, 5, 10, 20, 50),
}
"""Default sizes of a sweep: total tokens of prompt and answer, or documents."""


@dataclass(frozen=True)
class Workload:
    """A model, and the size of its prompt and answer."""

    model: str | None
    dtype: str
    device: str
    documents: int
    document_tokens: int
    new_tokens: int

    def layout(self, vocab_size: int) -> "TokenLayout":
        """Return a prompt of random tokens, which depends on the sizes only."""
        import torch

        from pine_engine.prompts.layout import TokenLayout

        generator = torch.Generator().manual_seed(0)

        def draw(count: int) -> tuple[int, ...]:
            return tuple(torch.randint(vocab_size, (count,), generator=generator).tolist())

        documents = tuple(draw(self.document_tokens) for _ in range(self.documents))
        return TokenLayout(draw(PREFIX_TOKENS), documents, draw(SUFFIX_TOKENS))

    def layout_for(self, engine: "Engine") -> "TokenLayout":
        """Return the prompt in the vocabulary of the model.

        Raises:
            InputError: Prompt and answer exceed the context of the model.
        """
        vocab_size = engine.model.config.get_text_config().vocab_size
        if engine.tokenizer is not None:  # some models have more embeddings than tokens
            vocab_size = min(vocab_size, len(engine.tokenizer))
        layout = self.layout(vocab_size)
        engine.check_length(layout, self.new_tokens)
        return layout


def sweep_over(work: Workload, sweep: Sweep, sizes: Sequence[int] | None = None) -> list[Workload]:
    """Return one workload per size.

    Args:
        work: Workload to vary.
        sweep: "tokens": as many documents of `work.document_tokens` as fit into the size, the total of prompt
            and answer. "documents": the size is their number; they share the document tokens of `work`.
        sizes: Sizes. Default: SWEEP_SIZES.

    Raises:
        InputError: A size leaves no document, or empty ones.
    """
    works = []
    for size in sizes or SWEEP_SIZES[sweep]:
        if sweep == "tokens":
            available = size - PREFIX_TOKENS - SUFFIX_TOKENS - work.new_tokens
            documents, tokens = available // work.document_tokens, work.document_tokens
        else:
            documents, tokens = size, work.documents * work.document_tokens // max(size, 1)
        if documents < 1 or tokens < 1:
            raise InputError(
                f"sweep over {sweep} cannot have the size {size}: it leaves {max(documents, 0)} documents of "
                f"{tokens} tokens. Give other --sizes, or other --documents and --document-tokens."
            )
        works.append(dataclasses.replace(work, documents=documents, document_tokens=tokens))
    return works
