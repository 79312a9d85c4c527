from .attention.trace import TokenRange as TokenRange, Trace as Trace, TraceConfig as TraceConfig
from .engine.engine import Engine as Engine
from .engine.events import (
    Answer as Answer,
    GenerationFinished as GenerationFinished,
    PrefillDone as PrefillDone,
    PrefillProgress as PrefillProgress,
    Repeated as Repeated,
    RequestProgress as RequestProgress,
    RequestsPlanned as RequestsPlanned,
    RunFinished as RunFinished,
    RunResult as RunResult,
    TokenGenerated as TokenGenerated,
)
from .engine.generation import generate_batch as generate_batch
from .engine.leave_one_out import (
    LeaveOneOut as LeaveOneOut,
    score_without_documents as score_without_documents,
)
from .engine.likelihood import Score as Score
from .engine.order_results import (
    OrderComparison as OrderComparison,
    OrderResult as OrderResult,
    OrderStats as OrderStats,
    ShuffleResult as ShuffleResult,
    summarize_orders as summarize_orders,
)
from .engine.orders import compare_orders as compare_orders
from .engine.prefix_cache import PrefixCache as PrefixCache
from .engine.transformers_generate import patch_generate as patch_generate
from .errors import InputError as InputError, ModelError as ModelError, PineError as PineError
from .integrations import CUSTOM_GENERATE as CUSTOM_GENERATE
from .integrations.pipeline import PinePipeline as PinePipeline
from .invariance.certificate import (
    Certificate as Certificate,
    create_certificate as create_certificate,
    hash_logits as hash_logits,
    read_certificate as read_certificate,
)
from .invariance.position_sweep import (
    OrderEffects as OrderEffects,
    SlotScored as SlotScored,
    order_effects as order_effects,
    sweep_document as sweep_document,
)
from .lab.debias.clusters import Clusters as Clusters
from .lab.debias.combining import DebiasResult as DebiasResult
from .lab.debias.debias import run_debias as run_debias
from .lab.debias.plan import plan_debias as plan_debias
from .lab.debias.wrappers import DEBIASERS as DEBIASERS
from .methods.plan import AttentionPlan as AttentionPlan, build_plan as build_plan
from .methods.table import METHODS as METHODS, Method as Method, get_methods as get_methods
from .prompts.layout import TokenLayout as TokenLayout
from .prompts.orders import sample_orders as sample_orders
from .prompts.prompt import Prompt as Prompt
from .prompts.request import LabeledRequest as LabeledRequest, Request as Request
from .prompts.tasks import TASKS as TASKS
from .rows.documents import Document as Document

__version__: str

__all__: list[str]
