"""Inference methods for questions over documents, with bitwise order invariance.

Names are imported when they are first used, so that `import pine_engine` alone loads fast. docs/library.md
documents each name.
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
    from pine_engine.engine.orders import (
        OrderCell,
        OrderRow,
        OrderSummary,
        ShuffleResult,
        compare_orders,
        orders_to_try,
        summarize,
    )
    from pine_engine.engine.prefix_cache import Memory
    from pine_engine.engine.transformers_generate import answering
    from pine_engine.errors import InputError, ModelError, PineError
    from pine_engine.invariance.certificate import Certificate, certify, logits_sha256, read_certificate
    from pine_engine.methods.plan import AttentionPlan, build_plan
    from pine_engine.methods.table import METHODS, Method, get_methods
    from pine_engine.prompts.inputs import Comparison, LabelledComparison
    from pine_engine.prompts.layout import TokenLayout
    from pine_engine.prompts.prompt import Document, Prompt
    from pine_engine.prompts.tasks import TASKS

_HOMES = {
    name: module
    for module, names in {
        "attention.trace": "TokenRange Trace TraceRequest",
        "debias.plan": "plan_debias",
        "debias.run": "Debiased run_debias",
        "debias.table": "WRAPPERS",
        "engine.batch": "answer_batch",
        "engine.engine": "Engine",
        "engine.events": "Answer AnswerDone PrefillDone PrefillProgress RunDone RunResult TokenDecoded",
        "engine.likelihood": "Score",
        "engine.orders": "OrderCell OrderRow OrderSummary ShuffleResult"
        " compare_orders orders_to_try summarize",
        "engine.prefix_cache": "Memory",
        "engine.transformers_generate": "answering",
        "errors": "InputError ModelError PineError",
        "invariance.certificate": "Certificate certify logits_sha256 read_certificate",
        "methods.plan": "AttentionPlan build_plan",
        "methods.table": "METHODS Method get_methods",
        "prompts.inputs": "Comparison LabelledComparison",
        "prompts.layout": "TokenLayout",
        "prompts.prompt": "Document Prompt",
        "prompts.tasks": "TASKS",
    }.items()
    for name in names.split()
}
"""Module of each name."""

__all__ = [
    "METHODS", "TASKS", "WRAPPERS", "Answer", "AnswerDone", "AttentionPlan", "Certificate", "Comparison",
    "Debiased", "Document", "Engine", "InputError", "LabelledComparison", "Memory", "Method", "ModelError",
    "OrderCell", "OrderRow", "OrderSummary", "PineError", "PrefillDone", "PrefillProgress", "Prompt",
    "RunDone", "RunResult", "Score", "ShuffleResult", "TokenDecoded", "TokenLayout", "TokenRange", "Trace",
    "TraceRequest", "answer_batch", "answering", "build_plan", "certify", "compare_orders", "get_methods",
    "logits_sha256", "orders_to_try", "plan_debias", "read_certificate", "run_debias", "summarize",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
