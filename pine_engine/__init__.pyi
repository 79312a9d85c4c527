from .attention.trace import TokenRange as TokenRange
from .attention.trace import Trace as Trace
from .attention.trace import TraceConfig as TraceConfig
from .debias.debias import DebiasResult as DebiasResult
from .debias.debias import run_debias as run_debias
from .debias.plan import plan_debias as plan_debias
from .debias.table import DEBIASERS as DEBIASERS
from .engine.engine import Engine as Engine
from .engine.events import (
    Answer as Answer,
)
from .engine.events import (
    GenerationFinished as GenerationFinished,
)
from .engine.events import (
    PrefillDone as PrefillDone,
)
from .engine.events import (
    PrefillProgress as PrefillProgress,
)
from .engine.events import (
    RunFinished as RunFinished,
)
from .engine.events import (
    RunResult as RunResult,
)
from .engine.events import (
    TokenGenerated as TokenGenerated,
)
from .engine.generation import generate_batch as generate_batch
from .engine.likelihood import Score as Score
from .engine.orders import (
    OrderComparison as OrderComparison,
)
from .engine.orders import (
    OrderResult as OrderResult,
)
from .engine.orders import (
    OrderStats as OrderStats,
)
from .engine.orders import (
    ShuffleResult as ShuffleResult,
)
from .engine.orders import (
    compare_orders as compare_orders,
)
from .engine.orders import (
    summarize_orders as summarize_orders,
)
from .engine.prefix_cache import PrefixCache as PrefixCache
from .engine.transformers_generate import patch_generate as patch_generate
from .errors import InputError as InputError
from .errors import ModelError as ModelError
from .errors import PineError as PineError
from .integrations import CUSTOM_GENERATE as CUSTOM_GENERATE
from .integrations.pipeline import PinePipeline as PinePipeline
from .invariance.certificate import (
    Certificate as Certificate,
)
from .invariance.certificate import (
    create_certificate as create_certificate,
)
from .invariance.certificate import (
    hash_logits as hash_logits,
)
from .invariance.certificate import (
    read_certificate as read_certificate,
)
from .invariance.position_sweep import (
    OrderEffects as OrderEffects,
)
from .invariance.position_sweep import (
    SlotScored as SlotScored,
)
from .invariance.position_sweep import (
    order_effects as order_effects,
)
from .invariance.position_sweep import (
    sweep_document as sweep_document,
)
from .methods.plan import AttentionPlan as AttentionPlan
from .methods.plan import build_plan as build_plan
from .methods.table import METHODS as METHODS
from .methods.table import Method as Method
from .methods.table import get_methods as get_methods
from .prompts.layout import TokenLayout as TokenLayout
from .prompts.orders import sample_orders as sample_orders
from .prompts.prompt import Document as Document
from .prompts.prompt import Prompt as Prompt
from .prompts.request import LabeledRequest as LabeledRequest
from .prompts.request import Request as Request
from .prompts.tasks import TASKS as TASKS

__version__: str

__all__: list[str]
