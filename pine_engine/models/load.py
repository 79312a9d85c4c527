"""Where a model comes from, and how it is loaded."""

import logging
import os
import re
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pine_engine.errors import ModelError, one_line
from pine_engine.input_validation import describe
from pine_engine.models.checkpoint import quiet_transformers, read_gguf, read_safetensors
from pine_engine.models.dtypes import LOADED_IN, AskedDtype, Dtype, known_dtype, resolve_dtype
from pine_engine.models.embedded import (
    EMBEDDED_NAME,
    INSTALL_ADVICE,
    WHEEL,
    Progress,
    embedded_version,
    find_embedded_gguf,
    prepare_embedded,
)
from pine_engine.models.hub import bring, find_on_hub
from pine_engine.models.support import stated_context

if TYPE_CHECKING:  # imported where they are used, for the reason that checkpoint.py gives
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = [
    "LoadedModel",
    "ModelSource",
    "fetch",
    "find_embedded_gguf",
    "load",
    "prepare_embedded",
    "resolve",
]

logger = logging.getLogger(__name__)

TENSOR_PARALLEL = "tp"
"""In place of a device: every layer split among the processes that torchrun has started."""

HUB_ID_OF_EMBEDDED = "HuggingFaceTB/SmolLM2-135M-Instruct"
SHIPPED = Path(__file__).with_name("shipped")
SHIPPED_NAMES = ("molecules",)
"""Folders there with a small model of our own, which a task names."""
NO_CONTEXT = (
    "its config has no max_position_embeddings; use a model with rotary positions that states its context"
    " length"
)
HUB_ID = re.compile(r"(?P<id>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>[\w./-]+))?", re.ASCII)


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from.

    revision is the wheel's version for the embedded model and None for a folder or file. For a hub model it
    is the branch, tag or commit that was asked for, and once the model is loaded the commit that came.
    """

    name: str
    path_or_id: str
    revision: str | None
    origin: Literal["embedded", "hub", "folder"]

    @property
    def is_gguf(self) -> bool:
        """True for weights in a GGUF file, which may store them in 4 bits."""
        return self.path_or_id.endswith(".gguf")

    @property
    def address(self) -> str:
        """What `load` takes elsewhere for the same model; a folder or file, being only here, has its name."""
        if self.origin != "hub":
            return self.name
        return f"{self.path_or_id}@{self.revision}" if self.revision else self.path_or_id


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for inference, and what a run has to know about it.

    max_context_length is in tokens. stop_token_ids are the token ids that end a turn.
    """

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    source: ModelSource
    dtype: Dtype
    max_context_length: int
    stop_token_ids: frozenset[int]


def resolve(name: str | os.PathLike[str] | None = None) -> ModelSource:
    """Where the model called `name` comes from; nothing is loaded and the hub is not asked.

    None is the embedded model, or its original on the hub where the wheel is not installed. Otherwise a
    folder, a GGUF file, the name of a model that this repository brings along, or a hub id, which may end in
    `@revision`.
    Raises ModelError if name is none of these.
    """
    if name is None or name == EMBEDDED_NAME:
        return resolve_embedded()
    name = os.fspath(name) if isinstance(name, os.PathLike) else name
    if not isinstance(name, str):
        raise ModelError(
            f"a model cannot be loaded by {describe(name)}; give a hub id, a folder or a GGUF file, or make "
            "Engine(model, tokenizer) of one that is loaded already"
        )
    try:
        local = resolve_path(name)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no user of that name
        raise ModelError(
            f"{name[:200]!r} cannot be looked at ({one_line(error)}); give another path"
        ) from error
    if local is not None:
        return local
    if name in SHIPPED_NAMES:
        return resolve_folder(SHIPPED / name)
    hub_id = HUB_ID.fullmatch(name)
    if hub_id is None or Path(name).exists():
        raise ModelError(
            f"{name!r} is not a model; expected a folder that holds one, a .gguf file, or a hub id such as"
            f" {HUB_ID_OF_EMBEDDED}"
        )
    return ModelSource(hub_id["id"].rpartition("/")[2], hub_id["id"], hub_id["revision"], "hub")


def load(
    name: str | os.PathLike[str] | None = None,
    *,
    dtype: "str | torch.dtype" = "auto",
    device: "str | torch.device" = "cpu",
    attn_implementation: str | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """A model and its tokenizer, in eval mode and without gradients; `name` as `resolve` takes it.

    dtype is float32, bfloat16, float16, 4bit, whose weights are loaded in float32, or auto, see
    resolve_dtype. device is torch's name of one, "auto" to let accelerate spread the model over several, or
    "tp" to let transformers split it among the processes of torchrun. attn_implementation is the model's own
    attention, in transformers' names; None is the fused one where the family has it. progress is called while
    the embedded model is unpacked, at its first use, while a model is downloaded, and before weights are
    read; it ends the loading by raising. The embedded model and local folders never ask the hub.
    Raises ModelError, with a sentence on what to do, if any of it is not possible.
    """
    asked, device = known_dtype(dtype), str(device)
    source = resolve(name)
    check_device(device)
    options: dict[str, Any] = {"attn_implementation": attn_implementation}
    if device == TENSOR_PARALLEL:
        from transformers.distributed.configuration_utils import DistributedConfig

        options["distributed_config"] = DistributedConfig(tp_plan="auto")
    elif device != "cpu":
        options["device_map"] = device

    if source.origin == "hub":
        # Where nobody asked for progress, the bars of the hub's client tell of a download of minutes.
        commit, is_online = find_on_hub(source.path_or_id, source.revision)

        def fetch() -> None:
            if is_online and progress is not None:
                bring(hub_id, revision, progress)
                progress(1.0, "reading the weights")

        # By its branch and not by the commit: only then the cache remembers which commit the branch was at.
        hub_id, revision = source.path_or_id, source.revision
        with nullcontext() if progress is None else quiet_transformers():
            model, tokenizer = read_safetensors(
                hub_id,
                revision=revision,
                local_files_only=not is_online,
                dtype=asked,
                device=device,
                fetch=fetch,
                **options,
            )
        source = replace(source, revision=commit)
    elif source.origin == "folder" and source.is_gguf:
        import torch

        torch_dtype = getattr(torch, LOADED_IN[resolve_dtype(asked, device, stored="4bit")])
        with quiet_transformers():
            model, tokenizer = read_gguf(Path(source.path_or_id), dtype=torch_dtype, **options)
    else:
        with quiet_transformers():
            embedded = source.origin == "embedded"
            folder = str(prepare_embedded(progress=progress)) if embedded else source.path_or_id
            model, tokenizer = read_safetensors(
                folder, revision=None, local_files_only=True, dtype=asked, device=device, **options
            )

    model.eval()
    model.requires_grad_(False)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        source=source,
        dtype=_loaded_dtype(model, source, asked, device),
        max_context_length=max_context_length(model),
        stop_token_ids=stop_token_ids(model, tokenizer),
    )


def _loaded_dtype(model: "PreTrainedModel", source: ModelSource, requested: AskedDtype, device: str) -> Dtype:
    """Return the dtype of a loaded model: 4bit if requested, or for `auto` if the GGUF file is in 4 bits."""
    from pine_engine.models.packed import stored_in_4_bits

    decodes_in_4_bits = requested == "4bit" or (
        source.is_gguf
        and resolve_dtype(requested, device, stored="4bit") == "4bit"
        and stored_in_4_bits(model)
    )
    return "4bit" if decodes_in_4_bits else cast("Dtype", str(model.dtype).removeprefix("torch."))


def fetch(name: str | None, progress: Progress) -> None:
    """Brings a model of the hub here; what `load` takes without the hub is here already.

    progress: see load. Raises ModelError as load does.
    """
    source = resolve(name)
    if source.origin == "hub" and find_on_hub(source.path_or_id, source.revision)[1]:
        bring(source.path_or_id, source.revision, progress)


def resolve_embedded() -> ModelSource:
    """The embedded model, or its original on the hub where the wheel is not installed."""
    gguf = find_embedded_gguf()
    if gguf is not None:
        return ModelSource(EMBEDDED_NAME, str(gguf), f"{WHEEL} {embedded_version()}", "embedded")
    logger.warning(
        "the embedded model is not installed (%s); using %s from the hub", INSTALL_ADVICE, HUB_ID_OF_EMBEDDED
    )
    return ModelSource(EMBEDDED_NAME, HUB_ID_OF_EMBEDDED, None, "hub")


def resolve_path(name: str) -> ModelSource | None:
    """A folder or a GGUF file; None for what is neither. Raises ModelError if it holds no model."""
    path = Path(name).expanduser()
    if name and path.is_dir():  # Path("") is the current folder
        return resolve_folder(path)
    if path.suffix != ".gguf":
        return None
    if not path.is_file():
        raise ModelError(f"there is no file {name}; give the path of a GGUF file that exists")
    return ModelSource(path.stem, str(path), None, "folder")


def resolve_folder(folder: Path) -> ModelSource:
    """A local folder in the way transformers saves models; raises ModelError if it does not look like one."""
    present = sorted(entry.name for entry in folder.iterdir())
    if "config.json" not in present:
        ggufs = [entry for entry in present if entry.endswith(".gguf")]
        advice = f"give the file itself, {folder / ggufs[0]}" if ggufs else "save it with `save_pretrained`"
        raise ModelError(f"folder {folder} has no config.json; expected a transformers model: {advice}")
    if not any(entry.endswith(".safetensors") for entry in present):
        raise ModelError(
            f"folder {folder} has no .safetensors file; weights in other formats are not opened: load them"
            " where you trust them and save with `save_pretrained`"
        )
    return ModelSource(folder.resolve().name, str(folder), None, "folder")


def check_model(given: Any) -> "PreTrainedModel":
    """What was given, if it is a transformers model that can write. Raises ModelError for anything else."""
    from torch import nn
    from transformers import PreTrainedConfig

    if not isinstance(given, nn.Module) or not isinstance(getattr(given, "config", None), PreTrainedConfig):
        raise ModelError(
            f"the model is {describe(given)}; give one that transformers has loaded, or a name to Engine.load"
        )
    if not getattr(given, "can_generate", bool)():
        raise ModelError(
            f"a {type(given).__name__} gives no logits of a next token; load it with AutoModelForCausalLM"
        )
    model = cast("PreTrainedModel", given)
    try:
        model.config.get_text_config()
    except ValueError as error:  # of several streams of text
        raise ModelError(f"a {type(given).__name__} is no single decoder of text: {error}") from error
    return model


def check_device(device: str) -> None:
    """Raise ModelError unless a tensor can be made there, now and not after minutes of download."""
    if device == "auto":
        return
    if device == TENSOR_PARALLEL:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return
        raise ModelError(
            f"device {device!r} splits a model among processes, and there is one; start two with `torchrun "
            "--nproc-per-node 2 -m pine_engine compare ...`, or name another device"
        )
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch built without CUDA
        raise ModelError(
            f"device {device!r} cannot be used ({one_line(error)}); use cpu, auto, or one that torch has here"
        ) from error


def max_context_length(model: "PreTrainedModel") -> int:
    """Longest context the model was made for, in tokens; raises ModelError if its config does not say."""
    limit = stated_context(model.config)
    if limit is None:
        raise ModelError(f"this {model.config.model_type} model cannot be used: {NO_CONTEXT}")
    return limit


def stop_token_ids(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase | None" = None
) -> frozenset[int]:
    """Return the token ids that end an answer.

    These are the ids of the generation config, or of the config where the generation config has none, and
    the tokenizer's end of sequence: chat models often end a turn with another token than a text.
    """
    stated = model.generation_config.eos_token_id if model.generation_config is not None else None
    if stated is None:
        stated = getattr(model.config.get_text_config(), "eos_token_id", None)
    listed = stated if isinstance(stated, list) else [stated]
    return frozenset(
        token for token in (*listed, getattr(tokenizer, "eos_token_id", None)) if token is not None
    )
