"""The engine of PINE Explorer: one model, several inference methods, exact order invariance.

`from pine_engine import Engine` imports what it needs when it is asked for, so that
`import pine_engine` alone, and the modules without torch, stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pine_engine.attention.trace import TokenRange, Trace, TraceRequest
    from pine_engine.engine.batch import answer_batch
    from pine_engine.engine.engine import Engine, Score
    from pine_engine.engine.events import Answer, RunResult
    from pine_engine.engine.prefix_cache import Memory
    from pine_engine.engine.transformers_generate import answering
    from pine_engine.errors import InputError, ModelError, PineError
    from pine_engine.invariance.orders import compare_orders
    from pine_engine.methods.table import METHODS, Method
    from pine_engine.prompts.layout import TokenLayout
    from pine_engine.prompts.prompt import Document, Prompt
    from pine_engine.prompts.tasks import TASKS

_HOMES = {
    "Answer": "engine.events",
    "Document": "prompts.prompt",
    "Engine": "engine.engine",
    "InputError": "errors",
    "METHODS": "methods.table",
    "Memory": "engine.prefix_cache",
    "Method": "methods.table",
    "ModelError": "errors",
    "PineError": "errors",
    "Prompt": "prompts.prompt",
    "RunResult": "engine.events",
    "Score": "engine.engine",
    "TASKS": "prompts.tasks",
    "TokenLayout": "prompts.layout",
    "TokenRange": "attention.trace",
    "Trace": "attention.trace",
    "TraceRequest": "attention.trace",
    "answer_batch": "engine.batch",
    "answering": "engine.transformers_generate",
    "compare_orders": "invariance.orders",
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
