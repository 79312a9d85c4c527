"""Which models there are, and what is known of each before its weights are read."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pine_engine.errors import ModelError, one_line
from pine_engine.models.checkpoint import lacking, read_config, weight_files
from pine_engine.models.dtypes import BYTES, Dtype, stored_dtype
from pine_engine.models.embedded import EMBEDDED_NAME, INSTALL_ADVICE, find_embedded_gguf
from pine_engine.models.hub import look_up
from pine_engine.models.load import NO_CONTEXT, ModelSource, resolve, resolve_folder
from pine_engine.models.support import ADVICE, refusal, stated_context

if TYPE_CHECKING:  # imported late elsewhere, for the reason that checkpoint.py gives
    from transformers import PretrainedConfig

EMBEDDED_CONTEXT = 8192
EMBEDDED_FAMILY = "llama"
EMBEDDED_PARAMETERS = 134_515_008
EMBEDDED_STATE = 11_520

PLAIN = ("F64", "F32", "F16", "BF16")
"""What weights that are not packed are called in safetensors files."""

RUN_TOKENS = 4096
RUN_METHODS = 4
"""Length and methods of the run that memory is kept for; shorter where the model reads less."""

WORKING_BYTES = 500e6
"""What a run takes beside weights and states: buffers, logits, what is recorded.

On the embedded model in float32 a run of 4,000 tokens under four methods took 1,196 MB beside the weights;
estimated are 1,255.
"""


@dataclass(frozen=True)
class LoadableModel:
    """A model, and what is known about it without reading its weights.

    name is what `load` takes. size_bytes: of its files. context is in tokens, None where the config does not
    state it. family is transformers' model type, "" if it could not be read. reason says why a model is not
    supported and what would work; it is empty for those that are. parameters: their number, None where it
    cannot be told, as for packed weights. state_values: numbers that the state of one token holds.
    missing_bytes: what is to be downloaded before it can be loaded. stored: dtype of the weights in the
    checkpoint, 4bit for every GGUF file.
    """

    name: str
    origin: Literal["embedded", "hub", "folder"]
    size_bytes: int
    context: int | None
    family: str
    supported: bool
    reason: str
    parameters: int | None = None
    state_values: int | None = None
    missing_bytes: int = 0
    stored: Dtype = "float32"

    def memory_bytes(self, dtype: Dtype) -> int:
        """An estimate of the memory for its weights and a run of RUN_TOKENS tokens under RUN_METHODS methods.

        Where the number of parameters is not known, their files stand for them.
        """
        weights = self.parameters * BYTES[dtype] if self.parameters else self.size_bytes
        tokens = min(self.context or RUN_TOKENS, RUN_TOKENS)
        states = (self.state_values or 0) * min(BYTES[dtype], 4) * tokens * RUN_METHODS
        return int(weights + states + WORKING_BYTES)


def list_models() -> list[LoadableModel]:
    """The models on this machine, which need no network, and of those that cannot be loaded the reason.

    The embedded model first, then the hub client's cache by name. No weights are read and nothing is asked
    of the hub; what a config does not say is found only when the model is loaded.
    """
    return [list_embedded(), *list_cached()]


def describe(name: str | None) -> LoadableModel:
    """What is known of the model called `name`, as `load` takes it; the hub is asked for what is not here.

    Raises ModelError if there is no such model, or it is not here and the hub cannot be reached.
    """
    source = resolve(name)
    called = name or source.name
    if source.origin == "embedded":
        return list_embedded()
    if source.origin == "hub":
        return describe_hub(called, source)
    path = Path(source.path_or_id)
    if path.is_file():
        return describe_gguf(called, path)
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    return describe_folder(LoadableModel(called, "folder", size, None, "", supported=False, reason=""), path)


def list_embedded() -> LoadableModel:
    """The embedded model, supported where its wheel is installed."""
    gguf = find_embedded_gguf()
    return LoadableModel(
        name=EMBEDDED_NAME,
        origin="embedded",
        size_bytes=0 if gguf is None else gguf.stat().st_size,
        context=EMBEDDED_CONTEXT,
        family=EMBEDDED_FAMILY,
        supported=gguf is not None,
        reason="" if gguf is not None else f"it is not installed; {INSTALL_ADVICE}",
        parameters=EMBEDDED_PARAMETERS,
        state_values=EMBEDDED_STATE,
        stored="4bit",
    )


def list_cached() -> list[LoadableModel]:
    """The models in the hub client's cache, sorted by name; of each the main branch, or what came last."""
    from huggingface_hub import constants, scan_cache_dir

    if not Path(constants.HF_HUB_CACHE).is_dir():
        return []
    # The folder is given, because the default was read when huggingface_hub was imported.
    repos = [repo for repo in scan_cache_dir(constants.HF_HUB_CACHE).repos if repo.repo_type == "model"]
    listed = []
    for repo in sorted(repos, key=lambda repo: repo.repo_id.lower()):
        newest_last = sorted(repo.revisions, key=lambda one: ("main" in one.refs, one.last_modified))
        for revision in newest_last[-1:]:  # a download that was broken off may leave none
            found = LoadableModel(repo.repo_id, "hub", revision.size_on_disk, None, "", False, "")
            listed.append(describe_folder(found, revision.snapshot_path))
    return listed


def describe_folder(model: LoadableModel, folder: Path) -> LoadableModel:
    """The model with what its folder says."""
    described = _configured(model, folder) if (folder / "config.json").is_file() else model
    if described.reason:
        return described
    try:
        resolve_folder(folder)
        parameters = _count_parameters(weight_files(folder))
    except ModelError as error:
        return replace(described, supported=False, reason=str(error))
    except Exception as error:  # SafetensorError, JSONDecodeError, OSError, ...
        damaged = f"its files are damaged ({one_line(error)}); bring them here again"
        return replace(described, supported=False, reason=damaged)
    return replace(described, supported=True, parameters=parameters)


def describe_gguf(name: str, gguf: Path) -> LoadableModel:
    """The model in a GGUF file, from its header; whether its architecture is supported is found at loading.

    Raises ModelError if the header cannot be read.
    """
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
        family = str(reader.fields["general.architecture"].contents())
        stated = {
            key.removeprefix(f"{family}."): int(field.contents())
            for key, field in reader.fields.items()
            if key.startswith(f"{family}.") and isinstance(field.contents(), int)
        }
        heads = stated["attention.head_count"]
        head_dim = stated.get("attention.key_length") or stated["embedding_length"] // heads
        state = 2 * stated["block_count"] * stated.get("attention.head_count_kv", heads) * head_dim
        parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    except Exception as error:  # the parser raises what it ran into: ValueError, KeyError, IndexError, ...
        raise ModelError(
            f"{gguf} could not be read as a GGUF model ({one_line(error)}); expected a whole GGUF file"
        ) from error
    return LoadableModel(
        name=name,
        origin="folder",
        size_bytes=gguf.stat().st_size,
        context=stated.get("context_length"),
        family=family,
        supported=True,
        reason="",
        parameters=parameters,
        state_values=state,
        stored="4bit",
    )


def describe_hub(name: str, source: ModelSource) -> LoadableModel:
    """A model of the hub: from the cache where it is whole there, else what the hub says of it."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(source.path_or_id, "config.json", revision=source.revision)
    if isinstance(cached, str):
        folder = Path(cached).parent
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        found = describe_folder(LoadableModel(name, "hub", size, None, "", False, ""), folder)
        if found.supported:
            return found
    told = look_up(source.path_or_id, source.revision)
    found = LoadableModel(
        name, "hub", told.weights_bytes, None, "", False, "", missing_bytes=told.missing_bytes
    )
    found = _configured(found, source.path_or_id, revision=source.revision or "main")
    if not found.reason and not told.weights_bytes:
        reason = "it has no .safetensors file; weights in other formats are not opened"
        return replace(found, supported=False, reason=reason)
    return replace(found, supported=not found.reason, parameters=told.parameters)


def _configured(model: LoadableModel, where: Path | str, **source: Any) -> LoadableModel:
    """The model with what its config says; not supported and with a reason where that rules it out."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from transformers.quantizers.auto import AutoHfQuantizer

    reason = ""
    try:
        local = isinstance(where, Path)
        config = read_config(where, local_files_only=local, trust_remote_code=False, **source)
        model = replace(
            model,
            family=config.model_type,
            context=stated_context(config),
            state_values=_state_values(config),
            stored=stored_dtype(config),
        )
        reason = refusal(config) or (NO_CONTEXT if model.context is None else "")
        if model.family not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            reason = f"{model.family} models do not write text one token after another; {ADVICE}"
        quantization = getattr(config, "quantization_config", None)
        if quantization and AutoHfQuantizer.supports_quant_method(quantization):
            AutoHfQuantizer.from_config(quantization).validate_environment()
    except ImportError as error:
        reason = lacking(error)
    except ModelError as error:
        reason = str(error)
    except Exception as error:  # AutoConfig raises many kinds: OSError, ValueError, KeyError, ...
        reason = f"its config cannot be read ({one_line(error)}); expected one that transformers knows"
    return replace(model, supported=False, reason=reason)


def _state_values(config: "PretrainedConfig") -> int | None:
    """Numbers in the keys and values of one token; None where the config does not say."""
    config = config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    if not heads:
        return None
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return int(2 * config.num_hidden_layers * kv_heads * head_dim)


def _count_parameters(weights: Iterable[Path]) -> int | None:
    """The number of parameters, from the headers of the files; None where some are packed."""
    from safetensors import safe_open

    count = 0
    for path in weights:
        with safe_open(path, framework="np") as file:
            tensors = list(map(file.get_slice, file.keys()))
        if any(tensor.get_dtype() not in PLAIN for tensor in tensors):
            return None
        count += sum(math.prod(tensor.get_shape()) for tensor in tensors)
    return count
