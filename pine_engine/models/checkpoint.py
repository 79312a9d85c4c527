"""Read a model and its tokenizer from a checkpoint: a folder, a hub snapshot or a GGUF file.

Everything read here is data. Code that comes with a model is never run, pickled weights are never opened, and
a checkpoint that leaves part of the model without weights is refused.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.errors import ModelError, PineError, one_line
from pine_engine.models.dtypes import LOADED_IN, AskedDtype, resolve_dtype, stored_dtype
from pine_engine.models.support import impossible_size, refusal

MAX_WEIGHTS_PER_BYTE = 8
"""Weights that one byte of a checkpoint can hold: those of 1 bit."""

# torch and transformers take about 1.7 s to import. Here and in the modules on top of this one they are
# imported where a model is read: finding one, checking the embedded one, or printing help need not wait.
if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


def check_stated_sizes(where: str | Path, **source: Any) -> None:
    """Raise ModelError if the config of a checkpoint has sizes that no model has; nothing is built for it.

    Args:
        where: Folder or hub id.
        source: Options of transformers' `from_pretrained` that say where the file comes from.
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


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights. Raises ModelError if one of them is not there."""
    index = folder / "model.safetensors.index.json"
    named = ["model.safetensors"]
    if index.is_file():
        named = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    missing = [name for name in named if not (folder / name).is_file()]
    if missing:
        raise ModelError(
            f"{len(missing)} of its {len(named)} files with weights are missing, the first is {missing[0]};"
            " bring them here, or load it where the Hugging Face hub can be reached"
        )
    return [folder / name for name in named]


def misfit(config: "PreTrainedConfig", folder: Path) -> str | None:
    """Return why a config describes a larger model than the weights in its folder; None if they can fit.

    transformers would fill what is missing with random numbers, which takes all time and memory, and report
    it afterwards.
    """
    from safetensors import safe_open

    try:
        files = weight_files(folder)
    except ModelError:
        return None  # transformers downloads what is missing, or says so
    num_tensors = 0
    for file in files:
        with safe_open(file, framework="np") as tensors:
            num_tensors += len(tensors.keys())
    num_weights = MAX_WEIGHTS_PER_BYTE * sum(file.stat().st_size for file in files)
    text = config.get_text_config()
    hidden, layers, heads = (
        getattr(text, name, None) or 0 for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")
    )
    widths = (layers, *(getattr(text, name, None) or 0 for name in ("vocab_size", "intermediate_size")))
    widths += (heads * (getattr(text, "head_dim", None) or 0),)
    if layers > num_tensors or hidden * max(widths) > num_weights:
        return (
            f"its config describes a larger model than its weights: got {layers:,} layers of width "
            f"{hidden:,}, {num_tensors:,} tensors and {num_weights // MAX_WEIGHTS_PER_BYTE:,} bytes; use a "
            "config that belongs to the weights"
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
    """Model and tokenizer of a local folder or a hub id; options go to the model's `from_pretrained`.

    dtype, device: select the dtype of the model, see resolve_dtype.
    fetch: called once the config was found good, before any weight is read; it may bring the weights here.
    Raises ModelError if the model, its safetensors weights or its tokenizer cannot be read, before any weight
    is read or downloaded if the config says that PINE cannot run the model, and what fetch raises.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
    from transformers.models.auto import modeling_auto
    from transformers.utils.hub import cached_file

    # False, not the default None: that would ask on the terminal whether to run a model's own code.
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
        # A model that sees is loaded as a whole where there is no kind of it that only writes.
        sees = set(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        sees -= modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
        # Any: the pair that output_loading_info asks for is not in transformers' annotations.
        kind: Any = AutoModelForImageTextToText if config.model_type in sees else AutoModelForCausalLM
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
        # transformers raises many kinds: OSError, ValueError, KeyError, RuntimeError, ImportError, ...
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


def read_gguf(gguf: Path, **options: Any) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Model with plain dense weights, and tokenizer, of a GGUF file; options go to `from_pretrained`.

    Raises ModelError if transformers cannot read the file.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    try:
        check_stated_sizes(gguf.parent, **source)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
        # dequantize=True: by default the config goes on saying "quantized", and transformers refuses to save
        # such a model; where a kernel for packed weights is installed, they would even stay packed.
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            **source,
            **options,
        )
    except ModelError as error:
        raise ModelError(f"{gguf} cannot be used: {error}") from error
    except Exception as error:  # the parser raises what it ran into: ValueError, KeyError, IndexError, ...
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
    """What to say where transformers needs another package for a model, as it does for quantised weights."""
    return (
        f"it needs what is not installed here ({one_line(error)}); install that, or use another version of"
        " the model, such as one that is not quantised"
    )


@contextmanager
def quiet_transformers(*, warns: bool = True) -> Iterator[None]:
    """Without transformers' progress bars, which on a model that loads in a second are only noise.

    warns: False for without its warnings too, where whoever loads looks at the report themselves.
    """
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
