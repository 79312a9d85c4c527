"""Places of models, and loading."""

import logging
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pine_engine.errors import ModelError
from pine_engine.input_validation import describe
from pine_engine.models import embedded, ollama
from pine_engine.models.adapters import base_of, errors_of_base, is_adapter, merge_adapter
from pine_engine.models.dtypes import Dtype, known_dtype, resolve_dtype
from pine_engine.models.embedded import EMBEDDED_NAME, Progress
from pine_engine.models.hub import bring, find_on_hub
from pine_engine.models.support import context_limit, model_errors, placement_problem
from pine_engine.optional_packages import import_extra

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

TENSOR_PARALLEL = "tp"
"""Device name for tensor parallelism: each layer is split among the processes of torchrun."""

HUB_ID_OF_EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
SHIPPED = Path(__file__).with_name("shipped")
SHIPPED_NAMES = ("molecules",)  # folders in SHIPPED with small models of this project, which tasks name
UNLIMITED = 2**31 - 1  # context length in tokens of a model without a limit
NO_CONTEXT = "its config has no max_position_embeddings; use a model that states its context length"
GGUF_MAGIC = b"GGUF"
SPLIT_GGUF = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
HUB_ID = re.compile(r"(?P<id>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class ModelSource:
    """Place of a model."""

    name: str
    path_or_id: str
    revision: str | None  # of the hub, after loading the commit; version of the wheel; None for a local model
    origin: Literal["embedded", "hub", "folder"]

    @property
    def address(self) -> str:
        """Name that `load` accepts on other machines; for a local model, its name."""
        if self.origin != "hub":
            return self.name
        return f"{self.path_or_id}@{self.revision}" if self.revision else self.path_or_id


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for inference; the context length is in tokens."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    source: ModelSource
    dtype: Dtype
    max_context_length: int
    stop_token_ids: frozenset[int]


def resolve(name: str | os.PathLike[str] | None = None) -> ModelSource:
    """Return the place of a model; neither the model is loaded nor the hub is contacted.

    None is the embedded model, or its original on the hub if the wheel is not installed. Raises ModelError.
    """
    if name is None or name == EMBEDDED_NAME:
        if gguf := embedded.find_embedded_gguf():
            revision = f"{embedded.WHEEL} {version(embedded.WHEEL)}"
            return ModelSource(EMBEDDED_NAME, str(gguf), revision, "embedded")
        message = "the embedded model is not installed (%s); using %s from the hub"
        logger.warning(message, embedded.INSTALL_ADVICE, HUB_ID_OF_EMBEDDED)
        return ModelSource(EMBEDDED_NAME, HUB_ID_OF_EMBEDDED, None, "hub")
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(name, str):
        message = f"invalid name of a model: got {describe(name)}, expected a hub id, a folder or a GGUF file"
        raise ModelError(message, field="model")
    with model_errors(repr(name[:200]), "give another path"):  # such as the home of an unknown user
        path = Path(name).expanduser()
        if name and path.is_dir():  # Path("") is the current folder
            return resolve_folder(path)
        if path.is_file():
            weights = ollama.find_weights(path)
            check_gguf(weights or path)
            name = f"{path.parent.name}:{path.name}" if weights else path.stem
            return ModelSource(name, str(weights or path), None, "folder")
        if name in SHIPPED_NAMES:
            return resolve_folder(SHIPPED / name)
        hub_id = None if path.exists() or path.suffix == ".gguf" else HUB_ID.fullmatch(name)
    if hub_id is None:
        message = f"{name!r} is not a model; expected a folder, a .gguf file, or {HUB_ID_OF_EMBEDDED}"
        raise ModelError(message, field="model")
    return ModelSource(hub_id["id"].rpartition("/")[2], hub_id["id"], hub_id["revision"], "hub")


def resolve_folder(folder: Path) -> ModelSource:
    """Return a folder as transformers or peft saves models. Raises ModelError for other folders."""
    present = sorted(entry.name for entry in folder.iterdir())
    if is_adapter(folder):
        return ModelSource(folder.resolve().name, str(folder), None, "folder")
    if "config.json" not in present:
        ggufs = [entry for entry in present if entry.endswith(".gguf")]
        advice = f"give the file itself, {folder / ggufs[0]}" if ggufs else "save it with `save_pretrained`"
        if {"blobs", "manifests"} <= {*present}:
            advice = f"give a model of Ollama, {folder / 'manifests/registry.ollama.ai/library/NAME/TAG'}"
        message = f"folder {folder} has no config.json; expected a transformers model: {advice}"
        raise ModelError(message, field="config.json")
    if not any(entry.endswith(".safetensors") for entry in present):
        message = f"folder {folder} has no .safetensors file; save the model with `save_pretrained`"
        raise ModelError(message, field="model.safetensors")
    return ModelSource(folder.resolve().name, str(folder), None, "folder")


def check_gguf(path: Path) -> None:
    """Raise ModelError for a file that is no GGUF file, also one of Ollama, or one part of several."""
    if part := SPLIT_GGUF.fullmatch(path.name):
        number, count, first = int(part[2]), int(part[3]), f"{part[1]}-00001-of-{part[3]}.gguf"
        message = f"{path} is part {number} of {count} of a GGUF file; put all parts in one folder, and join "
        command = f"llama-gguf-split --merge {first} {part[1]}.gguf"
        raise ModelError(f"{message}them there with `{command}`", field="weights")
    with path.open("rb") as file:
        is_gguf = file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    if is_gguf:
        return
    message = f"{path} is not a GGUF file; give one, or a folder of a transformers model"
    if path.name.startswith(ollama.BLOB):
        message = (
            f"{path} is a file of Ollama without weights; give the manifest of the model, named as its tag"
        )
    raise ModelError(message, field="model")


def load(
    name: str | os.PathLike[str] | None = None,
    *,
    dtype: "str | torch.dtype" = "auto",
    device: "str | torch.device" = "cpu",
    progress: Progress | None = None,
) -> LoadedModel:
    """Return a model and its tokenizer, in eval mode and without gradients; `Engine.load` has the options.

    The embedded model and local folders never contact the hub, except for the base model of an adapter. The
    device "auto" is several devices, "tp" the processes of torchrun. An exception of `progress` ends loading.
    """
    requested, device = known_dtype(dtype), str(device)
    source = named = resolve(name)
    adapter = Path(named.path_or_id) if is_adapter(Path(named.path_or_id)) else None
    if adapter:
        import_extra("peft", "peft")  # before a download of minutes
        base = base_of(adapter)
        with errors_of_base(adapter, base):
            source = resolve(base)
    check_device(device)
    from pine_engine.models import checkpoint, packed  # they import torch

    options: dict[str, Any] = {"dtype": requested, "device": device}
    if device == TENSOR_PARALLEL:
        from transformers.distributed.configuration_utils import DistributedConfig

        options["distributed_config"] = DistributedConfig(tp_plan="auto")
    elif device != "cpu":
        options["device_map"] = device

    place, is_hub = source.path_or_id, source.origin == "hub"
    is_gguf = Path(place).is_file()
    hub_options: dict[str, Any] = {"revision": "main", "local_files_only": True}
    if source.origin == "embedded":
        place = str(embedded.prepare_embedded(progress=progress))
    elif is_hub:
        with errors_of_base(adapter, place):
            commit, is_online = find_on_hub(place, source.revision)
        # Not the commit as the revision: the cache then stores the commit of the branch.
        hub_options = {"revision": source.revision or "main", "local_files_only": not is_online}

    # Without `progress`, the bars of the hub client show the state of a download.
    with nullcontext() if is_hub and progress is None else checkpoint.quiet_transformers():
        if Path(place).is_file():
            model, tokenizer = checkpoint.read_gguf(Path(place), **options)
        else:
            config = checkpoint.read_usable_config(place, **hub_options)
            if is_hub and is_online and progress is not None:
                bring(place, source.revision, progress)
                progress(1.0, "reading the weights")
            model, tokenizer = checkpoint.read_safetensors(place, config, source=hub_options, **options)
        if adapter:
            model = merge_adapter(model, adapter)
            tokenizer = checkpoint.read_tokenizer(adapter) or tokenizer

    model.eval()
    model.requires_grad_(False)
    loaded_dtype = cast("Dtype", str(model.dtype).removeprefix("torch."))
    is_4bit = is_gguf and resolve_dtype(requested, device, stored="4bit") == "4bit"
    if requested == "4bit" or (is_4bit and packed.stored_in_4_bits(model)):
        loaded_dtype = "4bit"
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        source=replace(source, revision=commit) if is_hub and not adapter else named,
        dtype=loaded_dtype,
        max_context_length=max_context_length(model),
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


def fetch(name: str | None, progress: Progress) -> None:
    """Download a model of the hub; other models are local."""
    source = resolve(name)
    if source.origin == "hub" and find_on_hub(source.path_or_id, source.revision)[1]:
        bring(source.path_or_id, source.revision, progress)


def check_model(model: Any) -> "PreTrainedModel":
    """Return a transformers model that can generate text. Raises ModelError for other objects."""
    from torch import nn
    from transformers import PreTrainedConfig

    if not isinstance(model, nn.Module) or not isinstance(getattr(model, "config", None), PreTrainedConfig):
        message = f"invalid model: got {describe(model)}, expected one that transformers has loaded"
        raise ModelError(message, field="model")
    kind = type(model).__name__
    if not getattr(model, "can_generate", bool)():
        message = f"a {kind} gives no logits of a next token; load it with AutoModelForCausalLM"
        raise ModelError(message, field="model")
    checked = cast("PreTrainedModel", model)
    with model_errors(f"a {kind}", "give a single decoder of text"):  # a config may have several text models
        checked.config.get_text_config()
    return checked


def check_device(device: str) -> None:
    """Raise ModelError if torch has no such device, before a download of minutes."""
    if device == "auto":
        return
    if device == TENSOR_PARALLEL:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return
        command = "torchrun --nproc-per-node 2 -m pine_engine compare ..."
        raise ModelError(f"device {device!r} needs several processes; start `{command}`", field="device")
    import torch

    # AssertionError: a torch built without CUDA.
    with model_errors(f"device {device!r}", "use cpu, auto, or one that torch has here", field="device"):
        torch.empty(0, device=device)


def max_context_length(model: "PreTrainedModel") -> int:
    """Return the context length of a model in tokens.

    A recurrent model, whose config states none, has no limit. Raises ModelError for others without one.
    """
    limit = context_limit(model.config)
    if limit is None and placement_problem(model.config):
        return UNLIMITED
    if limit is None:
        raise ModelError(f"this {model.config.model_type} model cannot be used: {NO_CONTEXT}", field="config")
    return limit[0]


def context_words(num_tokens: int) -> str:
    """Return a context length in words."""
    return "unlimited" if num_tokens == UNLIMITED else f"{num_tokens:,}"


def stop_token_ids(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase | None" = None
) -> frozenset[int]:
    """Return the token ids that end an answer; chat models often end a turn with another token."""
    eos = model.generation_config.eos_token_id if model.generation_config is not None else None
    if eos is None:
        eos = getattr(model.config.get_text_config(), "eos_token_id", None)
    token_ids = [*(eos if isinstance(eos, list) else [eos]), getattr(tokenizer, "eos_token_id", None)]
    return frozenset(token for token in token_ids if token is not None)
