"""Size of a benchmark: a prompt of random tokens and an answer of fixed length. Loads without torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pine_engine.errors import InputError

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.prompts.layout import TokenLayout

PREFIX_TOKENS = 30
SUFFIX_TOKENS = 28

Sweep = Literal["tokens", "documents"]

SWEEP_SIZES = {"tokens": (1024, 2048, 4096, 8192), "documents": (2, 5, 10, 20, 50)}
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

    def layout(self, engine: "Engine") -> "TokenLayout":
        """Return a prompt of random tokens. Raises InputError if it exceeds the context of the model."""
        import torch

        from pine_engine.prompts.layout import TokenLayout

        vocab_size = vocab_size_of(engine)
        lengths = [*[self.document_tokens] * self.documents, PREFIX_TOKENS, SUFFIX_TOKENS]
        generator = torch.Generator().manual_seed(0)
        *documents, prefix, suffix = (
            tuple(torch.randint(vocab_size, (length,), generator=generator).tolist()) for length in lengths
        )
        layout = TokenLayout(prefix, tuple(documents), suffix)
        engine.check_length(layout, self.new_tokens)
        return layout


def vocab_size_of(engine: "Engine") -> int:
    """Return the number of tokens; some models have more embedding rows."""
    size: int = engine.model.config.get_text_config().vocab_size
    return size if engine.tokenizer is None else min(size, len(engine.tokenizer))


def sweep_over(work: Workload, sweep: Sweep, sizes: Sequence[int] | None = None) -> list[Workload]:
    """Return one workload per size. Raises InputError for a size that leaves no document, or empty ones.

    sweep: "tokens": as many documents of `work.document_tokens` as fit into the size, the total of prompt and
    answer. "documents": the size is their number, and they share the document tokens of `work`.
    """
    works = []
    for size in sizes or SWEEP_SIZES[sweep]:
        if sweep == "tokens":
            available = size - PREFIX_TOKENS - SUFFIX_TOKENS - work.new_tokens
            documents, tokens = available // work.document_tokens, work.document_tokens
        else:
            documents, tokens = size, work.documents * work.document_tokens // max(size, 1)
        if documents < 1 or tokens < 1:
            left = f"{max(documents, 0)} documents of {tokens} tokens"
            problem = f"size is too small for the sweep over {sweep}: got {size}, which leaves {left}"
            raise InputError(f"{problem}. Give other --sizes or --document-tokens.", field="sizes")
        works.append(replace(work, documents=documents, document_tokens=tokens))
    return works
