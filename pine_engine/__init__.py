"""Inference methods for questions over documents, with bitwise order invariance.

Names are imported when they are first used, so that `import pine_engine` alone loads fast. docs/library.md
documents each name.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pine_engine.version import __version__ as __version__

if TYPE_CHECKING:
    from pine_engine.attention.trace import TokenRange, Trace, TraceConfig
    from pine_engine.debias.debias import DebiasResult, run_debias
    from pine_engine.debias.plan import plan_debias
    from pine_engine.debias.table import DEBIASERS
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.events import (
        Answer,
        GenerationFinished,
        PrefillDone,
        PrefillProgress,
        RunFinished,
        RunResult,
        TokenGenerated,
    )
    from pine_engine.engine.generation import generate_batch
    from pine_engine.engine.likelihood import Score
    from pine_engine.engine.orders import (
        OrderComparison,
        OrderResult,
        OrderStats,
        ShuffleResult,
        compare_orders,
        sample_orders,
        summarize_orders,
    )
    from pine_engine.engine.prefix_cache import PrefixCache
    from pine_engine.engine.transformers_generate import patch_generate
    from pine_engine.errors import InputError, ModelError, PineError
    from pine_engine.integrations import CUSTOM_GENERATE
    from pine_engine.integrations.pipeline import PinePipeline
    from pine_engine.invariance.certificate import (
        Certificate,
        create_certificate,
        hash_logits,
        read_certificate,
    )
    from pine_engine.invariance.position_sweep import OrderEffects, SlotScored, order_effects, sweep_document
    from pine_engine.methods.plan import AttentionPlan, build_plan
    from pine_engine.methods.table import METHODS, Method, get_methods
    from pine_engine.prompts.layout import TokenLayout
    from pine_engine.prompts.prompt import Document, Prompt
    from pine_engine.prompts.request import LabeledRequest, Request
    from pine_engine.prompts.tasks import TASKS

_LAZY_IMPORTS = {
    name: module
    for module, names in {
        "attention.trace": "TokenRange Trace TraceConfig",
        "debias.plan": "plan_debias",
        "debias.debias": "DebiasResult run_debias",
        "debias.table": "DEBIASERS",
        "engine.engine": "Engine",
        "engine.events": "Answer GenerationFinished PrefillDone PrefillProgress RunFinished RunResult "
        "TokenGenerated",
        "engine.generation": "generate_batch",
        "engine.likelihood": "Score",
        "engine.orders": "OrderComparison OrderResult OrderStats ShuffleResult"
        " compare_orders sample_orders summarize_orders",
        "engine.prefix_cache": "PrefixCache",
        "engine.transformers_generate": "patch_generate",
        "errors": "InputError ModelError PineError",
        "integrations": "CUSTOM_GENERATE",
        "integrations.pipeline": "PinePipeline",
        "invariance.certificate": "Certificate create_certificate hash_logits read_certificate",
        "invariance.position_sweep": "OrderEffects SlotScored order_effects sweep_document",
        "methods.plan": "AttentionPlan build_plan",
        "methods.table": "METHODS Method get_methods",
        "prompts.request": "LabeledRequest Request",
        "prompts.layout": "TokenLayout",
        "prompts.prompt": "Document Prompt",
        "prompts.tasks": "TASKS",
    }.items()
    for name in names.split()
}
"""Module of each name."""

__all__ = [
    "CUSTOM_GENERATE", "DEBIASERS", "METHODS", "TASKS", "Answer", "AttentionPlan", "Certificate",
    "DebiasResult", "Document", "Engine", "GenerationFinished", "InputError", "LabeledRequest", "Method",
    "ModelError", "OrderComparison", "OrderEffects", "OrderResult", "OrderStats", "PineError",
    "PinePipeline", "PrefillDone", "PrefillProgress", "PrefixCache", "Prompt", "Request", "RunFinished",
    "RunResult", "Score", "ShuffleResult", "SlotScored", "TokenGenerated", "TokenLayout", "TokenRange",
    "Trace", "TraceConfig", "build_plan", "compare_orders", "create_certificate", "generate_batch",
    "get_methods", "hash_logits", "order_effects", "patch_generate", "plan_debias", "read_certificate",
    "run_debias", "sample_orders", "summarize_orders", "sweep_document",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY_IMPORTS[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY_IMPORTS]
