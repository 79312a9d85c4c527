"""Available models, and their properties without reading the weights."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pine_engine.errors import ModelError, one_line
from pine_engine.models.adapters import base_of, errors_of_base, is_adapter
from pine_engine.models.dtypes import BYTES, Dtype, stored_dtype
from pine_engine.models.embedded import EMBEDDED_NAME, INSTALL_ADVICE, find_embedded_gguf
from pine_engine.models.hub import look_up
from pine_engine.models.load import NO_CONTEXT, ModelSource, resolve, resolve_folder
from pine_engine.models.resources import in_words
from pine_engine.models.support import (
    ADVICE,
    context_limit,
    model_errors,
    placement_problem,
    refusal,
    shared_value,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig

UNPACKED_DTYPES = {"F64", "F32", "F16", "BF16"}
"""Dtypes of safetensors files in which one number is one parameter."""

RUN_TOKENS = 4096
RUN_METHODS = 4
"""Length and methods of the run for which memory is reserved; shorter if the context is shorter."""

WORKING_BYTES = 500e6
"""Memory of a run for buffers, logits and traces; for the embedded model, the estimate is 5 % too high."""


@dataclass(frozen=True)
class LoadableModel:
    """Properties of a model that are known without loading its weights."""

    name: str  # that `load` accepts
    origin: Literal["embedded", "hub", "folder"]
    size_bytes: int
    context: int | None = None  # in tokens, if stated
    family: str = ""  # model type of transformers
    supported: bool = False
    reason: str = ""  # why `load` does not support the model, and what to use
    parameters: int | None = None  # None if unknown, as for packed weights
    state_values: int | None = None  # numbers in the keys and values of one token
    missing_bytes: int = 0  # to download before loading
    stored: Dtype = "float32"  # dtype of the weights in the checkpoint, 4bit for each GGUF file
    placement_problem: str = ""  # why methods that place documents do not fit, see Engine.placement_problem

    def memory_bytes(self, dtype: Dtype) -> int:
        """Estimate the memory of the weights and of a run of RUN_TOKENS tokens under RUN_METHODS methods."""
        weights = self.parameters * BYTES[dtype] if self.parameters else self.size_bytes
        tokens = min(self.context or RUN_TOKENS, RUN_TOKENS)
        states = (self.state_values or 0) * min(BYTES[dtype], 4) * tokens * RUN_METHODS
        return int(weights + states + WORKING_BYTES)

    def check_memory(self, dtype: Dtype, free: int, device: str) -> None:
        """Raise ModelError if the model does not fit into the free bytes, with sizes and alternatives."""
        needed, halved = self.memory_bytes(dtype), self.memory_bytes("bfloat16")
        if needed <= free:
            return
        advice = "Select a smaller model."
        if halved < needed and halved <= free:
            advice = f"Select bfloat16 ({in_words(halved)})."
        raise ModelError(
            f"Not enough memory for {self.name}: needs {in_words(needed)} in {dtype}, {in_words(free)} free "
            f"({device}). {advice}"
        )


def list_models() -> list[LoadableModel]:
    """Return the embedded model and those in the cache of the hub client, also unsupported ones.

    Neither weights are loaded nor the hub is contacted. A cached model is its main or newest revision.
    """
    from huggingface_hub import constants, scan_cache_dir

    models = [list_embedded()]
    if not Path(constants.HF_HUB_CACHE).is_dir():
        return models
    # The default folder was read when huggingface_hub was imported.
    repos = [repo for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos if repo.repo_type == "model"]
    for repo in sorted(repos, key=lambda repo: repo.repo_id.lower()):
        newest_last = sorted(repo.revisions, key=lambda each: ("main" in each.refs, each.last_modified))
        for revision in newest_last[-1:]:  # an interrupted download may leave no revision
            model = LoadableModel(repo.repo_id, "hub", revision.size_on_disk)
            models.append(describe_folder(model, revision.snapshot_path))
    return models


def describe(name: str | None) -> LoadableModel:
    """Return the properties of a model; the hub is contacted for a model that is not on this machine."""
    source = resolve(name)
    name = name or source.name
    if source.origin == "embedded":
        return list_embedded()
    if source.origin == "hub":
        return describe_hub(name, source)
    path = Path(source.path_or_id)
    if path.is_file():
        return describe_gguf(name, path)
    if is_adapter(path):
        base = base_of(path)
        with errors_of_base(path, base):
            return replace(describe(base), name=name)
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return describe_folder(LoadableModel(name, "folder", size), path)


def list_embedded() -> LoadableModel:
    """Return the embedded model, supported if its wheel is installed."""
    gguf = find_embedded_gguf()
    # The header of the GGUF file has these numbers, but parsing it takes 15 s.
    model = LoadableModel(EMBEDDED_NAME, "embedded", 0, context=8192, family="llama", stored="4bit")
    model = replace(model, parameters=134_515_008, state_values=11_520)
    if gguf is None:
        return replace(model, reason=f"it is not installed; {INSTALL_ADVICE}")
    return replace(model, size_bytes=gguf.stat().st_size, supported=True)


def describe_folder(model: LoadableModel, folder: Path) -> LoadableModel:
    """Return the model with the properties from its folder."""
    from pine_engine.models.checkpoint import read_headers  # imports torch

    if (folder / "config.json").is_file():
        model = _with_config(model, folder, local_files_only=True)
    if model.reason:
        return model
    try:
        resolve_folder(folder)
        with model_errors("", "its files are damaged: bring them here again", field="weights"):
            counts = read_headers(folder).parameter_count
    except ModelError as error:
        return replace(model, reason=str(error))
    is_packed = bool(set(counts) - UNPACKED_DTYPES)
    return replace(model, supported=True, parameters=None if is_packed else sum(counts.values()))


def describe_gguf(name: str, gguf: Path) -> LoadableModel:
    """Return the model in a GGUF file from its header; the architecture is checked when it is loaded."""
    from gguf import GGUFReader

    with model_errors(f"model {gguf}", "expected a whole GGUF file", field="weights"):
        reader = GGUFReader(gguf)
        family = str(reader.fields["general.architecture"].contents())
        header = {
            key.removeprefix(f"{family}."): int(field.contents())
            for key, field in reader.fields.items()
            if key.startswith(f"{family}.") and isinstance(field.contents(), int)
        }
        heads = header["attention.head_count"]
        head_dim = header.get("attention.key_length") or header["embedding_length"] // heads
        state = 2 * header["block_count"] * header.get("attention.head_count_kv", heads) * head_dim
        parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    model = LoadableModel(name, "folder", gguf.stat().st_size, supported=True, stored="4bit", family=family)
    return replace(model, context=header.get("context_length"), parameters=parameters, state_values=state)


def describe_hub(name: str, source: ModelSource) -> LoadableModel:
    """Return a model of the hub: from the cache if it is complete there, else from the hub."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(source.path_or_id, "config.json", revision=source.revision)
    if isinstance(cached, str):
        folder = Path(cached).parent
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        model = describe_folder(LoadableModel(name, "hub", size), folder)
        if model.supported:
            return model
    parameters, weights_bytes, missing_bytes = look_up(source.path_or_id, source.revision)
    model = LoadableModel(name, "hub", weights_bytes, missing_bytes=missing_bytes)
    model = _with_config(model, source.path_or_id, revision=source.revision or "main")
    no_weights = "" if weights_bytes else "it has no .safetensors file; other formats are not opened"
    reason = model.reason or no_weights
    return replace(model, reason=reason, supported=not reason, parameters=parameters)


def _with_config(model: LoadableModel, where: Path | str, **source: Any) -> LoadableModel:
    """Return the model with the properties from its config, and a reason if the config excludes it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from pine_engine.models.checkpoint import check_quantization, read_config

    try:
        with model_errors("", "its config is not one that transformers knows", field="config"):
            config = read_config(where, **source)
            limit = context_limit(config)
            model = replace(model, family=config.model_type, context=limit and limit[0])
            model = replace(model, state_values=state_values(config), stored=stored_dtype(config))
            if not refusal(config):
                check_quantization(config)
    except ModelError as error:
        return replace(model, reason=str(error))
    reason, problem = refusal(config) or "", ""
    if not reason:
        problem = placement_problem(config) or ""
        reason = NO_CONTEXT if model.context is None and not problem else ""
    if model.family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        reason = f"{model.family} models do not write text one token after another; {ADVICE}"
    return replace(model, reason=reason, placement_problem=problem)


@dataclass(frozen=True)
class ModelType:
    """Model type of transformers and the methods that fit it, by its default config.

    A model with other options can differ; loading checks properties that a config does not state.
    """

    name: str
    fits: Literal["placement", "passes", "refused"]  # all methods, those that need passes alone, or none
    reason: str = ""  # why not all methods fit


def list_types() -> list[ModelType]:
    """Return the causal model types of transformers. No model is built."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from pine_engine.models.checkpoint import quiet_transformers  # imports torch

    types = []
    for name in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        try:
            with quiet_transformers(warns=False):  # of token ids outside the default vocabulary
                config = AutoConfig.for_model(name)
        except Exception as error:  # of transformers, for types without a usable default
            types.append(ModelType(name, "refused", f"its default config is invalid ({one_line(error)})"))
            continue
        refused = refusal(config)
        reason = refused or placement_problem(config)
        fits: Literal["placement", "passes", "refused"] = "passes" if reason else "placement"
        types.append(
            ModelType(name, "refused" if refused else fits, (reason or "").removesuffix(f"; {ADVICE}"))
        )
    return types


def state_values(config: "PretrainedConfig") -> int | None:
    """Return the number of values in the keys and values of one token; None if the config lacks it."""
    config = config.get_text_config()
    heads = shared_value(config, "num_attention_heads")
    if not heads:
        return None
    head_dim = shared_value(config, "head_dim") or config.hidden_size // heads
    kv_heads = shared_value(config, "num_key_value_heads") or heads
    if shared_value(config, "kv_lora_rank"):  # latent attention, whose keys and values are stored expanded
        head_dim, kv_heads = config.qk_nope_head_dim + config.qk_rope_head_dim, heads
    return int(2 * config.num_hidden_layers * kv_heads * head_dim)
