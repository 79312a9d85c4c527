"""What a run may be told beside its prompt: one record that checks itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pine_engine.attention.trace import TraceRequest
from pine_engine.engine.prefix_cache import Memory
from pine_engine.errors import InputError
from pine_engine.given import in_words, whole_number
from pine_engine.methods.table import Method, get_methods

MethodsGiven = str | Method | Iterable[str | Method] | None
"""Methods as a caller names them, see get_methods."""

MAX_NEW_TOKENS = 64
"""The longest answer, in tokens, if nobody says otherwise."""


@dataclass(frozen=True, init=False)
class RunOptions:
    """The options of a run as the engine works on them; Engine.run says what each does and may be given as.

    trace: what is recorded, None for nothing. memory: an empty one where none was given.
    """

    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: TraceRequest | None
    keep_logits: bool
    stop_at_end: bool
    memory: Memory

    def __init__(
        self,
        *,
        methods: MethodsGiven = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        memory: Memory | None = None,
    ) -> None:
        """Raises InputError for an unknown method, a length below 0, and what is no request or no memory."""
        if trace is not None and not isinstance(trace, bool | TraceRequest):
            raise InputError(f"the trace is {in_words(trace)}; give True, False or a TraceRequest(...)")
        if memory is not None and not isinstance(memory, Memory):
            raise InputError(f"the memory is {in_words(memory)}; give a Memory(), or leave it out")
        kept: dict[str, Any] = {
            "methods": get_methods(methods),
            "max_new_tokens": whole_number(max_new_tokens, "answer length", least=0, unit=" tokens"),
            "trace": TraceRequest() if trace is True else trace or None,
            "keep_logits": keep_logits,
            "stop_at_end": stop_at_end,
            "memory": Memory() if memory is None else memory,
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)
