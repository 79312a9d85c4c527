"""The engine of PINE Explorer: one model, several inference methods, exact order invariance.

`from pine_engine import Engine` imports what it needs when it is asked for, so that
`import pine_engine` alone, and the modules without torch, stay quick. What each name is for: docs/library.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pine_engine.attention.trace import TokenRange, Trace, TraceRequest
    from pine_engine.debias.plan import plan_debias
    from pine_engine.debias.run import Debiased, run_debias
    from pine_engine.debias.table import WRAPPERS
    from pine_engine.engine.batch import answer_batch
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.events import (
        Answer,
        AnswerDone,
        PrefillDone,
        PrefillProgress,
        RunDone,
        RunResult,
        TokenDecoded,
    )
    from pine_engine.engine.likelihood import Score
    from pine_engine.engine.orders import OrderCell, OrderRow, OrderSummary, orders_to_try, summarize
    from pine_engine.engine.prefix_cache import Memory
    from pine_engine.engine.shuffle import ShuffleResult
    from pine_engine.engine.transformers_generate import answering
    from pine_engine.errors import InputError, ModelError, PineError
    from pine_engine.invariance.certificate import Certificate, certify, logits_sha256, read_certificate
    from pine_engine.invariance.reproduction import compare_orders
    from pine_engine.methods.plan import AttentionPlan, build_plan
    from pine_engine.methods.table import METHODS, Method, get_methods
    from pine_engine.prompts.inputs import Comparison, LabelledComparison
    from pine_engine.prompts.layout import TokenLayout
    from pine_engine.prompts.prompt import Document, Prompt
    from pine_engine.prompts.tasks import TASKS

_HOMES = {
    "Answer": "engine.events",
    "AnswerDone": "engine.events",
    "AttentionPlan": "methods.plan",
    "Certificate": "invariance.certificate",
    "Comparison": "prompts.inputs",
    "Debiased": "debias.run",
    "Document": "prompts.prompt",
    "Engine": "engine.engine",
    "InputError": "errors",
    "LabelledComparison": "prompts.inputs",
    "METHODS": "methods.table",
    "Memory": "engine.prefix_cache",
    "Method": "methods.table",
    "ModelError": "errors",
    "OrderCell": "engine.orders",
    "OrderRow": "engine.orders",
    "OrderSummary": "engine.orders",
    "PineError": "errors",
    "PrefillDone": "engine.events",
    "PrefillProgress": "engine.events",
    "Prompt": "prompts.prompt",
    "RunDone": "engine.events",
    "RunResult": "engine.events",
    "Score": "engine.likelihood",
    "ShuffleResult": "engine.shuffle",
    "TASKS": "prompts.tasks",
    "TokenDecoded": "engine.events",
    "TokenLayout": "prompts.layout",
    "TokenRange": "attention.trace",
    "Trace": "attention.trace",
    "TraceRequest": "attention.trace",
    "WRAPPERS": "debias.table",
    "answer_batch": "engine.batch",
    "answering": "engine.transformers_generate",
    "build_plan": "methods.plan",
    "certify": "invariance.certificate",
    "compare_orders": "invariance.reproduction",
    "get_methods": "methods.table",
    "logits_sha256": "invariance.certificate",
    "orders_to_try": "engine.orders",
    "plan_debias": "debias.plan",
    "read_certificate": "invariance.certificate",
    "run_debias": "debias.run",
    "summarize": "engine.orders",
}
"""The module of each name."""

__all__ = [
    "METHODS",
    "TASKS",
    "WRAPPERS",
    "Answer",
    "AnswerDone",
    "AttentionPlan",
    "Certificate",
    "Comparison",
    "Debiased",
    "Document",
    "Engine",
    "InputError",
    "LabelledComparison",
    "Memory",
    "Method",
    "ModelError",
    "OrderCell",
    "OrderRow",
    "OrderSummary",
    "PineError",
    "PrefillDone",
    "PrefillProgress",
    "Prompt",
    "RunDone",
    "RunResult",
    "Score",
    "ShuffleResult",
    "TokenDecoded",
    "TokenLayout",
    "TokenRange",
    "Trace",
    "TraceRequest",
    "answer_batch",
    "answering",
    "build_plan",
    "certify",
    "compare_orders",
    "get_methods",
    "logits_sha256",
    "orders_to_try",
    "plan_debias",
    "read_certificate",
    "run_debias",
    "summarize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
