"""The engine of PINE Explorer: one model, several inference methods, exact order invariance.

`from pine_engine import Engine` imports what it needs when it is asked for, so that
`import pine_engine` alone, and the modules without torch, stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pine_engine.batch import answer_batch
    from pine_engine.engine import Engine, Score
    from pine_engine.errors import InputError, ModelError, PineError
    from pine_engine.events import Answer, RunResult
    from pine_engine.invariance import compare_orders
    from pine_engine.layout import TokenLayout
    from pine_engine.methods import METHODS, Method
    from pine_engine.prompt import Document, Prompt
    from pine_engine.reuse import Memory
    from pine_engine.stock import answering
    from pine_engine.tasks import TASKS
    from pine_engine.trace import TokenRange, Trace, TraceRequest

_HOMES = {
    "Answer": "events",
    "Document": "prompt",
    "Engine": "engine",
    "InputError": "errors",
    "METHODS": "methods",
    "Memory": "reuse",
    "Method": "methods",
    "ModelError": "errors",
    "PineError": "errors",
    "Prompt": "prompt",
    "RunResult": "events",
    "Score": "engine",
    "TASKS": "tasks",
    "TokenLayout": "layout",
    "TokenRange": "trace",
    "Trace": "trace",
    "TraceRequest": "trace",
    "answer_batch": "batch",
    "answering": "stock",
    "compare_orders": "invariance",
}
"""The module of each name."""

__all__ = [
    "METHODS",
    "TASKS",
    "Answer",
    "Document",
    "Engine",
    "InputError",
    "Memory",
    "Method",
    "ModelError",
    "PineError",
    "Prompt",
    "RunResult",
    "Score",
    "TokenLayout",
    "TokenRange",
    "Trace",
    "TraceRequest",
    "answer_batch",
    "answering",
    "compare_orders",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
