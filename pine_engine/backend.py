"""Interface of models to page, commands and evaluation.

An `Engine` computes here, an `Endpoint` sends the prompts to a server. To add a backend, write a class with
the members of `Backend` in a package of its own below this file, and open it where `Endpoint` is opened:
`pine_engine/cli/endpoint.py` for commands, `app.py` for the page. No other code has to change:

- Events are those of `pine_engine/engine/events.py`. A backend may yield a part of them. Callers wait
  only for the last of a prompt: `RunFinished`, or an `OrderResult` for each document order.
- A method or output that the backend lacks is a sentence of `misfit`. Callers show it or omit the output.
- A backend that returns texts has `bitwise_identical=None` in comparisons, and NaN for numbers it lacks.
- `tests/test_backend.py` checks these properties for each backend in its list.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from pine_engine.engine.events import Event
from pine_engine.methods.table import Method, Output, Requirement
from pine_engine.prompts.chat_templates import ChatTemplateKwargs
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.work import Work

if TYPE_CHECKING:  # these import torch
    from pine_engine.engine.order_results import OrderResult
    from pine_engine.engine.prefix_cache import PrefixCache
    from pine_engine.engine.run import MethodsLike, RunOptions


class Backend(Protocol):
    """A model that answers prompts under several methods."""

    @property
    def model_name(self) -> str:
        """Name of the model in reports."""

    @property
    def model_ref(self) -> str:
        """Name that loads or reaches the same model."""

    @property
    def revision(self) -> str | None:
        """Commit of the weights, None if it is not known."""

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations."""

    @property
    def device(self) -> str:
        """Device that computes."""

    @property
    def conditions(self) -> str:
        """Model and decoding in words, with everything that may change an answer."""

    @property
    def extra_body(self) -> Mapping[str, Any]:
        """Fields that the user adds to each request; empty if there are no requests."""

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of prompts with its chat template, None without text."""

    @property
    def invariance_warning(self) -> str | None:
        """Reason in a sentence if bitwise identical results are not guaranteed, or None."""

    @property
    def answer_warning(self) -> str | None:
        """Reason in a sentence if answers may change although the prompt does not, or None."""

    @property
    def max_context_length(self) -> int | None:
        """Maximum of prompt and answer, in tokens; None if it is not known."""

    @property
    def ids_per_token(self) -> int:
        """Number of ids of a layout per token of the model; an average if only a server has the tokenizer."""

    @property
    def meets(self) -> Requirement:
        """Largest need of a method that the model meets."""

    @property
    def methods(self) -> Sequence[Method]:
        """Methods that fit the model, in the order of the table."""

    @property
    def active_prefixes(self) -> "PrefixCache | None":
        """Prefix cache that runs at the same time can share, or None."""

    def misfit(self, need: Method | Output) -> str | None:
        """Return in a sentence why the backend has no such method or output, None if it has it."""

    def bind_template_kwargs(self, kwargs: ChatTemplateKwargs) -> "tuple[Backend, ChatTemplateKwargs]":
        """Return the backend for prompts with arguments of the chat template, and those to render here."""

    def select_methods(self, methods: "MethodsLike") -> tuple[Method, ...]:
        """Return the named methods, for None the default ones. Raises PineError if one does not fit."""

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """Return the ids of a prompt. Raises InputError for an invalid one."""

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text that follows a prompt."""

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token; an empty list if only a server has them."""

    def check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        """Raise InputError if prompt and answer are known to exceed the context."""

    def run_bytes(
        self,
        layout: TokenLayout,
        methods: str | Method | Iterable[str | Method],
        max_new_tokens: int,
        *,
        num_orders: int = 1,
        return_logits: bool = False,
    ) -> float:
        """Return the memory that a run takes here at once, in bytes."""

    def describe_prompts(self, work: Work) -> str:
        """Return the number of prompts of planned work, and of their tokens, in words."""

    def generate(
        self, prompt: Prompt | TokenLayout, **options: Unpack["RunOptions"]
    ) -> Generator[Event, None, None]:
        """Answer under each method and yield events, the last is RunFinished; closing stops the model."""

    def compare_orders(
        self,
        prompt: Prompt | TokenLayout,
        *,
        orders: Iterable[Sequence[int]] | None = None,
        **options: Unpack["RunOptions"],
    ) -> "Generator[Event | OrderResult, None, None]":
        """Answer in each document order and yield events, and an OrderResult for each order in turn."""

    def run_each(
        self,
        prompts: Sequence[Prompt | TokenLayout],
        *,
        orders: Sequence[Sequence[Sequence[int]]] | None = None,
        **options: Unpack["RunOptions"],
    ) -> "Generator[tuple[int, Event | OrderResult], None, None]":
        """Answer several prompts, each in its document orders if given, and yield (index, event)."""
