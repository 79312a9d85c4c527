"""Models and tokenizers from checkpoints: a folder, a hub snapshot or a GGUF file.

Checkpoints are data: code in them is never run, pickled weights are never opened, and a checkpoint that lacks
weights is rejected.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.errors import ModelError, PineError, one_line
from pine_engine.models.dtypes import LOADED_IN, AskedDtype, resolve_dtype, stored_dtype
from pine_engine.models.support import impossible_size, refusal

MAX_WEIGHTS_PER_BYTE = 8
"""Weights of 1 bit in one byte of a checkpoint."""

# torch and transformers take about 1.7 s to import. In this folder, the functions that load a model import
# them, so that finding a model and printing help do not wait.
if TYPE_CHECKING:
    from huggingface_hub import SafetensorsRepoMetadata
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def check_stated_sizes(where: str | Path, **source: Any) -> None:
    """Raise ModelError if the config of a checkpoint has sizes that no model has; nothing is built for it.

    Args:
        where: Folder or hub id.
        source: Options of transformers' `from_pretrained` for the place of the file.
    """
    from transformers import PreTrainedConfig

    stated, _ = PreTrainedConfig.get_config_dict(where, **source)
    if reason := impossible_size(stated):
        raise ModelError(reason)


def read_config(where: str | Path, **source: Any) -> "PreTrainedConfig":
    """Return the config of a checkpoint; arguments and errors as for `check_stated_sizes`."""
    from transformers import AutoConfig

    check_stated_sizes(where, **source)
    config: PreTrainedConfig = AutoConfig.from_pretrained(where, **source)
    return config


def read_headers(folder: Path) -> "SafetensorsRepoMetadata":
    """Return the headers of the weight files. Raises ModelError if a file is missing or truncated."""
    from huggingface_hub import get_local_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        metadata = get_local_safetensors_metadata(folder)
    except (FileNotFoundError, NotASafetensorsRepoError) as error:
        name = Path(getattr(error, "filename", None) or "model.safetensors").name
        raise ModelError(
            f"a file with its weights is missing: {name}; bring it here, or load the model where the Hugging"
            " Face hub can be reached"
        ) from error
    for name, header in metadata.files_metadata.items():
        data_bytes = max((tensor.data_offsets[1] for tensor in header.tensors.values()), default=0)
        if (folder / name).stat().st_size < data_bytes:
            raise ModelError(f"its files are damaged: {name} is truncated; bring them here again")
    return metadata


def misfit(config: "PreTrainedConfig", folder: Path) -> str | None:
    """Return why a config describes a larger model than the weights in its folder; None if they can fit.

    transformers would fill missing weights with random numbers, which takes time and memory without limit,
    and report it afterwards.
    """
    try:
        headers = read_headers(folder)
    except ModelError:
        return None  # transformers downloads missing files, or reports them
    num_tensors = len(headers.weight_map)
    num_bytes = sum((folder / name).stat().st_size for name in headers.files_metadata)
    text = config.get_text_config()
    hidden, layers, heads = (
        getattr(text, name, None) or 0 for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    )
    widths = (layers, *(getattr(text, name, None) or 0 for name in ("vocab_size", "intermediate_size")))
    widths += (heads * (getattr(text, "head_dim", None) or 0),)
    if layers > num_tensors or hidden * max(widths) > MAX_WEIGHTS_PER_BYTE * num_bytes:
        return (
            f"its config describes a larger model than its weights: got {layers:,} layers of width "
            f"{hidden:,}, {num_tensors:,} tensors and {num_bytes:,} bytes; use a config that belongs to the "
            "weights"
        )
    return None


def read_safetensors(
    folder_or_id: str,
    *,
    revision: str | None,
    local_files_only: bool,
    dtype: AskedDtype,
    device: str,
    fetch: Callable[[], None] | None = None,
    **options: Any,
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Return model and tokenizer of a local folder or a hub id; options are those of `from_pretrained`.

    `fetch` is called after the checks of the config, before weights are read, and may download the weights.
    Raises ModelError if model, weights or tokenizer cannot be read, or if the config excludes the model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
    from transformers.models.auto import modeling_auto
    from transformers.utils.hub import cached_file

    # False: the default None would prompt on the terminal to run the code of the model.
    source = {
        "revision": revision or "main",
        "local_files_only": local_files_only,
        "trust_remote_code": False,
    }
    try:
        try:
            config = read_config(folder_or_id, **source)
            reason = refusal(config)
        except ModelError as error:
            reason = str(error)
        if reason:
            raise ModelError(f"model {folder_or_id} cannot be used: {reason}")
        if fetch is not None:
            fetch()
        here = {"revision": source["revision"], "local_files_only": local_files_only}
        folder = Path(str(cached_file(folder_or_id, "config.json", **here))).parent
        if reason := misfit(config, folder):
            raise ModelError(f"model {folder_or_id} cannot be used: {reason}")
        # Models with images are loaded as a whole unless transformers has a text-only class for them.
        with_images = set(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        with_images -= modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
        # Any: transformers' annotations lack the pair that output_loading_info returns.
        kind: Any = AutoModelForImageTextToText if config.model_type in with_images else AutoModelForCausalLM
        resolved = LOADED_IN[resolve_dtype(dtype, device, stored=stored_dtype(config))]
        loaded = kind.from_pretrained(
            folder_or_id,
            use_safetensors=True,
            output_loading_info=True,
            dtype=getattr(torch, resolved),
            **source,
            **options,
        )
    except PineError:
        raise
    except ImportError as error:
        raise ModelError(f"model {folder_or_id} cannot be loaded here: {lacking(error)}") from error
    except Exception as error:
        # transformers raises many types: OSError, ValueError, KeyError, RuntimeError, ImportError, ...
        raise ModelError(
            f"model {folder_or_id} could not be loaded ({one_line(error)}); expected a causal language model"
            " that transformers knows, with safetensors weights"
        ) from error
    model, report = loaded
    refuse_missing_weights(report, folder_or_id)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder_or_id, **source)
    except Exception as error:
        raise ModelError(
            f"the tokenizer of model {folder_or_id} could not be loaded ({one_line(error)}); save it beside"
            " the weights with `tokenizer.save_pretrained(folder)`"
        ) from error
    return model, tokenizer


def read_gguf(
    gguf: Path, *, dtype: AskedDtype, device: str, **options: Any
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Return model, with dense weights, and tokenizer of a GGUF file. Raises ModelError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    try:
        check_stated_sizes(gguf.parent, **source)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
        # Without dequantize=True the config stays "quantized", and transformers refuses to save the model; if
        # a kernel for packed weights is installed, the weights would stay packed.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            dtype=getattr(torch, LOADED_IN[resolve_dtype(dtype, device, stored="4bit")]),
            **source,
            **options,
        )
    except ModelError as error:
        raise ModelError(f"{gguf} cannot be used: {error}") from error
    except Exception as error:  # the parser raises ValueError, KeyError, IndexError, ...
        raise ModelError(
            f"{gguf} could not be read as a GGUF model ({one_line(error)}); expected a whole GGUF file of an"
            " architecture that transformers knows, or a folder with safetensors weights"
        ) from error
    model, report = loaded
    refuse_missing_weights(report, str(gguf))
    return model, tokenizer


def refuse_missing_weights(report: dict[str, Any], where: str) -> None:
    """Raise ModelError if transformers filled weights the checkpoint lacks with random numbers."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{where} lacks {len(missing)} weights of its model, the first is {missing[0]}; the checkpoint is"
            " not complete or is not one of a causal language model"
        )


def lacking(error: ImportError) -> str:
    """Return the reason if transformers needs another package for a model, as for quantized weights."""
    return (
        f"it needs what is not installed here ({one_line(error)}); install that, or use another version of"
        " the model, such as one that is not quantized"
    )


@contextmanager
def quiet_transformers(*, warns: bool = True) -> Iterator[None]:
    """Hide the progress bars of transformers; with `warns=False` also its warnings."""
    from transformers.utils import logging

    had_bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if not warns:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()
