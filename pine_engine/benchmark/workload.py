"""What is measured: a prompt of random tokens and an answer of fixed length, at one size or at several.

It is planned and checked without torch, which is imported where tokens are drawn and the model is loaded.
"""

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
"""What a sweep goes over unless asked otherwise: tokens in all, prompt and answer; or documents."""


@dataclass(frozen=True)
class Workload:
    """What is measured: a prompt of random tokens and an answer of fixed length."""

    model: str | None
    dtype: str
    device: str
    documents: int
    document_tokens: int
    new_tokens: int

    def layout(self, vocabulary: int) -> "TokenLayout":
        """Random tokens, the same for everyone."""
        import torch

        from pine_engine.prompts.layout import TokenLayout

        generator = torch.Generator().manual_seed(0)

        def ids(count: int) -> tuple[int, ...]:
            return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

        documents = tuple(ids(self.document_tokens) for _ in range(self.documents))
        return TokenLayout(ids(PREFIX_TOKENS), documents, ids(SUFFIX_TOKENS))

    def load(self) -> "Engine":
        """The model in an engine."""
        from pine_engine.benchmark.random_models import load_engine

        return load_engine(self.model, dtype=self.dtype, device=self.device)

    def layout_for(self, engine: "Engine") -> "TokenLayout":
        """Its prompt in the model's vocabulary. Raises InputError if it does not fit the model's context."""
        vocabulary = engine.model.config.get_text_config().vocab_size
        if engine.tokenizer is not None:  # some models have more rows of embedding than tokens
            vocabulary = min(vocabulary, len(engine.tokenizer))
        layout = self.layout(vocabulary)
        engine.check_length(layout, self.new_tokens)
        return layout


def sweep_over(work: Workload, sweep: Sweep, sizes: Sequence[int] | None = None) -> list[Workload]:
    """The workloads of a sweep, one a size.

    "tokens": documents of work.document_tokens each, as many as fit so many tokens in all. "documents": so
    many documents that share the document tokens of `work`, so that the prompt keeps its length.
    Raises InputError for a size that leaves no document or an empty one.
    """
    works = []
    for size in sizes or SWEEP_SIZES[sweep]:
        if sweep == "tokens":
            room = size - PREFIX_TOKENS - SUFFIX_TOKENS - work.new_tokens
            documents, tokens = room // work.document_tokens, work.document_tokens
        else:
            documents, tokens = size, work.documents * work.document_tokens // max(size, 1)
        if documents < 1 or tokens < 1:
            raise InputError(
                f"a sweep over {sweep} cannot have the size {size}: with {work.documents} documents of "
                f"{work.document_tokens} tokens it leaves {max(documents, 0)} documents of {tokens} tokens; "
                "give other --sizes, or other --documents and --document-tokens"
            )
        works.append(dataclasses.replace(work, documents=documents, document_tokens=tokens))
    return works
