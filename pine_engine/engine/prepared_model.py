"""Prepared model: a model with its tokenizer and limits, and the networks over its weights."""

import logging
import math
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.blocks import MIN_LENGTH_RATIO
from pine_engine.attention.model_validation import errors_of_model, validate_model
from pine_engine.attention.state import input_device
from pine_engine.attention.strategy import check_fit, misfit
from pine_engine.engine.invariance_check import check_invariance
from pine_engine.engine.stock_passes import validate_stock_model
from pine_engine.engine.streams import split_streams
from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_int, as_ints, as_tuple_of, describe, sequence
from pine_engine.methods.table import METHODS, Method, Output, Requirement, default_methods, get_methods
from pine_engine.models import load
from pine_engine.models.listing import state_values
from pine_engine.models.packed import DecodeWeight, pack, repack
from pine_engine.models.support import PLACEMENT, context_limit, model_errors
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.model_snapshot import ModelSnapshot
from pine_engine.network.parallel import num_local_heads
from pine_engine.network.reordered_weight import reorder_output_layer
from pine_engine.network.stock_model import StockModel
from pine_engine.prompts.chat_templates import ChatTemplateKwargs
from pine_engine.prompts.layout import TOKEN_IDS, TokenLayout, check_vocabulary, tokenize, tokenize_text
from pine_engine.prompts.prompt import PROMPT_HINT, Prompt
from pine_engine.prompts.thinking import SplitAnswer, find_markers, split_thinking
from pine_engine.prompts.token_bytes import token_bytes
from pine_engine.scheduling.work import Work
from pine_engine.scheduling.worker import compute_on

if TYPE_CHECKING:

    class GenerativeModel(PreTrainedModel):
        """Model with `generate`, which transformers declares for a protocol that its models do not fit."""

        def generate(self, *arguments: Any, **options: Any) -> Any:
            """Generate token ids."""


logger = logging.getLogger(__name__)

BYTES_AT_ONCE = 2**30
"""Memory for caches and logits of the orders that are decoded together. A single order may use more."""

RANKED_STATES = 1.5 / MIN_LENGTH_RATIO
"""Values per document token of PINE in units of other caches: two kinds of keys, values, and padding."""

CONTENT_FREE_QUESTION = "N/A"
"""Question with which in-context re-ranking compares (Chen et al. 2025)."""


MARKER_TOKENS = 32
"""Tokens at the end of a prompt that may be the start marker of the thinking part and white space."""


class PreparedModel:
    """A model, which is not changed, its tokenizer, and validated networks that share its parameters.

    Module and adapter state is copied, and weights of decode steps are converted once. Both follow changes of
    the model.
    """

    ids_per_token = 1
    answer_warning: str | None = None
    extra_body: Mapping[str, Any] = {}

    _packed: dict[nn.Parameter, DecodeWeight]
    _patched_models: tuple[PatchedModel, ...]
    _invariance_warning: str | None

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        *,
        name: str = "model",
        revision: str | None = None,
        model_ref: str | None = None,
        stop_token_ids: int | Iterable[int] | None = None,
        max_context_length: int | None = None,
        decode_in_4bit: bool = False,
    ) -> None:
        """Validate a loaded transformers model and prepare it for runs.

        Args:
            model: Causal language model.
            tokenizer: Needed for prompts of text, not for a `TokenLayout`.
            name: Name in reports.
            revision: Commit of the weights on the hub.
            model_ref: Argument of `load` that loads the same model. Default: name.
            stop_token_ids: Token ids that end an answer. Default: end-of-sequence ids of model and tokenizer.
            max_context_length: Maximum of prompt and answer, in tokens. Default: that of the configuration.
            decode_in_4bit: True to decode with 4-bit weights (float32 models on the CPU only).

        Raises:
            ModelError: If the model is not supported. One whose attention PINE cannot replace runs as it is,
                see placement_problem; a warning is logged.
            InputError: For an invalid tokenizer, token id or length.
        """
        checked = load.check_model(model)
        if tokenizer is not None and not hasattr(tokenizer, "get_added_vocab"):
            message = f"invalid tokenizer: got {describe(tokenizer)}, expected one of transformers."
            raise InputError(message, field="tokenizer")
        self.model = cast("GenerativeModel", checked)
        self.tokenizer: Any = tokenizer  # may be None; the types of transformers leave much unknown
        self._added_tokens = frozenset(tokenizer.get_added_vocab() if tokenizer is not None else ())
        self.num_heads = num_local_heads(model)
        self.model_name = name
        self.revision = revision
        self.model_ref = model_ref or name
        self.decode_in_4bit = decode_in_4bit
        self._update_lock = threading.Lock()
        # Encoding text as data changes a setting of the tokenizer during the call.
        self._tokenizer_lock = threading.Lock()
        self._snapshot = ModelSnapshot.of(model)
        self._prepare()
        if self.placement_problem:
            fitting = ", ".join(method.name for method in self.methods)
            message = "%s. It runs as it is, under methods that need forward passes alone: %s."
            logger.warning(message, self.placement_problem, fitting)
        num_patched = len(self._patched_models[0].ropes)  # calls of attention in a pass
        self.num_layers: int = num_patched or model.config.get_text_config().num_hidden_layers
        self.stop_token_ids = (
            load.stop_token_ids(model, tokenizer)
            if stop_token_ids is None
            else frozenset(as_tuple_of(stop_token_ids, int, "stop id", "give token ids", least=0))
        )
        self.max_context_length: int = (
            load.max_context_length(model)
            if max_context_length is None
            else as_int(max_context_length, "longest context", least=1, unit=" tokens")
        )

    def _prepare(self) -> None:
        def work() -> None:
            packed: dict[nn.Parameter, DecodeWeight] = {**reorder_output_layer(self.model)}
            if self.decode_in_4bit:
                packed |= pack(self.model)
            patched_models, self._invariance_warning = self._validated(packed)
            content_free = (
                () if self.tokenizer is None else tokenize_text(CONTENT_FREE_QUESTION, self.tokenizer)
            )
            self._packed = packed
            self._patched_models = tuple(replace(one, content_free=content_free) for one in patched_models)

        compute_on(self.model.device, work)

    def _validated(
        self, packed: dict[nn.Parameter, DecodeWeight]
    ) -> tuple[tuple[PatchedModel, ...], str | None]:
        """Return the networks with PINE's attention, or the model as it is if that does not fit.

        The second value is the warning of the check of order invariance.
        """
        vocab_size = self.model.config.get_text_config().vocab_size
        try:
            patched_models = validate_model(self.model, packed)
            with errors_of_model(self.model):
                return patched_models, check_invariance(patched_models, self.model_name, vocab_size)
        except ModelError as error:
            if error.field != PLACEMENT:
                raise
            if self.decode_in_4bit:
                message = f"{error}. It runs as it is, without 4-bit weights: use dtype float32."
                raise ModelError(message, field="dtype") from error
            packed.clear()  # the model runs its own layers
            stock = (validate_stock_model(self.model, str(error)),)
            with model_errors(type(self.model).__name__, "use another model"):
                return stock, check_invariance(stock, self.model_name, vocab_size)

    @property
    def placement_problem(self) -> str | None:
        """Reason in a sentence if methods that place documents do not fit the model, otherwise None."""
        first = self._patched_models[0]
        return first.reason if isinstance(first, StockModel) else None

    @property
    def meets(self) -> Requirement:
        """Largest need of a method that the model meets."""
        return "passes" if self.placement_problem else "placement"

    @property
    def methods(self) -> tuple[Method, ...]:
        """Methods that fit the model, in the order of the table."""
        return tuple(method for method in METHODS.values() if self.misfit(method) is None)

    def misfit(self, need: Method | Output) -> str | None:
        """Return in a sentence why the method does not fit the model, None if it fits; every output does."""
        return misfit(need, self._patched_models[0]) if isinstance(need, Method) else None

    def select_methods(self, methods: str | Method | Iterable[str | Method] | None) -> tuple[Method, ...]:
        """Return the named methods, see get_methods; for None the default ones that fit the model.

        Raises:
            InputError: As get_methods.
            ModelError: A method does not fit the model.
        """
        if methods is None:
            return default_methods(self.meets)
        selected = get_methods(methods)
        for method in selected:
            self.check_method(method)
        return selected

    @property
    def default_method(self) -> Method:
        """Method of callers that run a single one: the last default method, PINE where it fits."""
        return self.select_methods(None)[-1]

    @property
    def patched_models(self) -> tuple[PatchedModel, ...]:
        """The networks that run, updated first if weights, modules or adapters of the model have changed.

        The objects are new after every change, so that no prefix cache mixes states of old and new weights.

        Raises:
            ModelError: If the changed model is not supported.
        """
        if ModelSnapshot.of(self.model).is_same(self._snapshot):
            return self._patched_models
        with self._update_lock:
            snapshot = ModelSnapshot.of(self.model)
            if snapshot.is_same(self._snapshot):  # updated by another thread
                return self._patched_models
            if snapshot.has_same_structure(self._snapshot):
                compute_on(self.model.device, lambda: repack(self._packed))
                self._patched_models = tuple(map(replace, self._patched_models))
            else:
                self._prepare()
            self._snapshot = snapshot
        return self._patched_models

    @property
    def invariance_warning(self) -> str | None:
        """Reason in a sentence if bitwise identical results are not guaranteed here, otherwise None."""
        return self._invariance_warning

    def bind_template_kwargs(self, kwargs: ChatTemplateKwargs) -> tuple[Self, ChatTemplateKwargs]:
        """Return the model, and the arguments of its chat template, with which prompts are rendered."""
        return self, kwargs

    @property
    def conditions(self) -> str:
        """Model, dtype, device and decoding, in words."""
        return f"{self.model_name}, {self.dtype}, {self.device}; greedy decoding"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model_name}, {self.dtype} on {self.device})"

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations, or 4bit."""
        return "4bit" if self.decode_in_4bit else str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """Device of the token ids."""
        return str(input_device(self.model))

    @property
    def shares_steps(self) -> bool:
        """True if runs of several threads share decode steps: no logit depends on the batch size."""
        return is_batch_invariant(self.model.dtype, input_device(self.model))

    def run_bytes(
        self,
        layout: TokenLayout,
        methods: str | Method | Iterable[str | Method],
        max_new_tokens: int,
        *,
        num_orders: int = 1,
        return_logits: bool = False,
    ) -> float:
        """Return the memory that a run takes at once for caches and kept logits, in bytes.

        Infinity if the run has to be alone, because it cannot share decode steps. In several orders, it is
        that of the orders that are decoded together and of the first order, with which they are compared.
        """
        if not self.shares_steps:
            return math.inf
        total = self.answer_bytes(layout, get_methods(methods), max_new_tokens, return_logits=return_logits)
        return min(num_orders * total, max(total, BYTES_AT_ONCE) + total)

    def answer_bytes(
        self, layout: TokenLayout, methods: Iterable[Method], max_new_tokens: int, *, return_logits: bool
    ) -> float:
        """Return the memory of caches and kept logits of a prompt under each method, in bytes."""
        num_values = state_values(self.model.config) or self.vocab_size
        num_values *= 2 if self.placement_problem else 1  # that of the prompt is kept
        num_logits = (layout.suffix_length + max_new_tokens) * self.vocab_size if return_logits else 0
        total = 0.0
        for method in methods:
            prompt = layout.repeat_question() if method.question == "in_every_document" else layout
            streams = [stream for stream, _ in split_streams(layout, method)] if method.merge else [prompt]
            num_tokens: float = sum(stream.num_tokens + max_new_tokens for stream in streams)
            itemsize = self.model.dtype.itemsize
            if method.positions.startswith("importance"):  # ranked, and stored in float32
                num_tokens += (RANKED_STATES - 1) * int(layout.lengths.sum())
                itemsize = max(itemsize, 4)
            total += num_tokens * num_values * itemsize + 4 * num_logits
        return total

    def describe_prompts(self, work: Work) -> str:
        """Return the number of prompts, and of their tokens, in words."""
        return work.describe_prompts()

    @property
    def vocab_size(self) -> int:
        """Number of token ids that have an embedding."""
        try:
            weight = cast(Tensor, self.model.get_input_embeddings().weight)
        except (AttributeError, NotImplementedError):  # a custom embedding without one weight
            return int(self.model.config.get_text_config().vocab_size)
        return weight.shape[0]

    def check_method(self, method: Method) -> None:
        """Raise ModelError if the method does not fit the model."""
        check_fit(method, self._patched_models[0])

    def check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        """Raise InputError if prompt and answer exceed the context of the model.

        Args:
            layout: Tokens of the prompt.
            max_new_tokens: Limit of the answer, in tokens.
        """
        if layout.num_tokens + as_int(max_new_tokens, "answer length", least=0) <= self.max_context_length:
            return
        stated, reason = context_limit(self.model.config) or (None, "")
        limit = reason if self.max_context_length == stated else f"the context has {self.max_context_length}"
        lengths = f"the prompt has {layout.num_tokens} tokens and the answer may have {max_new_tokens}"
        raise InputError(f"{lengths}, but {limit}. Shorten documents or the answer.", field="prompt")

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """Return the token ids of a prompt.

        Args:
            prompt: Prompt of text, or token ids, which are checked.

        Raises:
            InputError: For an empty part, ids outside the vocabulary, or text without a tokenizer.
        """
        if isinstance(prompt, TokenLayout):
            prompt.check_vocabulary(self.vocab_size)
            return prompt
        if not isinstance(prompt, Prompt):
            raise InputError(f"the prompt is {describe(prompt)}; {PROMPT_HINT}", field="prompt")
        tokenizer = self._require_tokenizer()
        with self._tokenizer_lock:
            return tokenize(prompt, tokenizer)

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """Return the token ids of an answer. Control tokens in the text are encoded as plain text.

        Raises:
            InputError: If there are no tokens, or no tokenizer.
        """
        tokenizer = self._require_tokenizer()
        if not isinstance(text, str):
            raise InputError(f"invalid answer: got {describe(text)}, expected text", field="answer")
        with self._tokenizer_lock:
            ids = tokenize_text(text, tokenizer)
        if not ids:
            raise InputError(f"answer is empty: got {text!r}, which has no tokens", field="answer")
        return ids

    def decode_text(self, ids: Sequence[int]) -> str:
        """Return the text of an answer. Without a tokenizer, it is empty."""
        if self.tokenizer is None:
            return ""
        text: str = self.tokenizer.decode(self._check_ids(ids), skip_special_tokens=True)
        return text.rstrip("\ufffd")  # a character whose bytes are incomplete

    def decode_answer(self, ids: Sequence[int], suffix: Sequence[int]) -> SplitAnswer:
        """Return thinking part and answer in the text of generated tokens; suffix: end of their prompt."""
        markers = find_markers(self.tokenizer, self._added_tokens)
        if markers is None:
            return SplitAnswer("", self.decode_text(ids))
        decode = partial(self.tokenizer.decode, skip_special_tokens=False)  # markers may be special tokens
        begins_inside = decode(suffix[-MARKER_TOKENS:]).rstrip().endswith(markers.start)
        found = split_thinking(decode(ids).rstrip("\ufffd"), markers, begins_inside=begins_inside)
        special = re.compile("|".join(map(re.escape, self.tokenizer.all_special_tokens)) or "(?!)")
        return found._replace(thinking=special.sub("", found.thinking), text=special.sub("", found.text))

    def token_bytes(self, ids: Sequence[int]) -> list[bytes | None]:
        """Return the bytes of each token in UTF-8, None for special tokens.

        Raises InputError without a tokenizer.
        """
        tokenizer = self._require_tokenizer()
        return [token_bytes(tokenizer, token) for token in self._check_ids(ids)]

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        r"""Return the text of each token, with its blanks; parts of characters as \xe2\x82.

        Raises InputError without a tokenizer.
        """
        return [
            self.tokenizer.decode([token]) if value is None else value.decode(errors="backslashreplace")
            for token, value in zip(ids, self.token_bytes(ids), strict=True)
        ]

    def _require_tokenizer(self) -> Any:
        if self.tokenizer is None:
            message = "the engine has no tokenizer. Create Engine(model, tokenizer), or pass token ids."
            raise InputError(message, field="tokenizer")
        return self.tokenizer

    def _check_ids(self, ids: Any) -> tuple[int, ...]:
        numbers = as_ints((ids,) if sequence(ids) is None else ids, "token ids", TOKEN_IDS)
        check_vocabulary("token ids", numbers, self.vocab_size)
        return numbers

    def allow_forks(self) -> None:
        """Allow forks of this process (POSIX only), which wait until no thread tokenizes."""
        lock = self._tokenizer_lock
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def check_engine(value: Any) -> None:
    """Raise InputError for a value that is not an engine, such as a plain model."""
    if not hasattr(value, "tokenize"):
        message = f"invalid engine: got {describe(value)}, expected Engine(model, tokenizer) or Engine.load()"
        raise InputError(message, field="engine")
