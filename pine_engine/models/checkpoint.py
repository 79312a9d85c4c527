"""Read a model and its tokenizer from a checkpoint: a folder, a hub snapshot or a GGUF file.

Everything read here is data. Code that comes with a model is never run, pickled weights are never opened, and
a checkpoint that leaves part of the model without weights is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pine_engine.errors import ModelError, PineError, one_line
from pine_engine.models.dtypes import LOADED_IN, AskedDtype, resolve_dtype, stored_dtype
from pine_engine.models.support import refusal

# torch and transformers take about 1.7 s to import. Here and in the modules on top of this one they are
# imported where a model is read: finding one, checking the embedded one, or printing help need not wait.
if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


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
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoTokenizer,
    )
    from transformers.models.auto import modeling_auto

    # False, not the default None: that would ask on the terminal whether to run a model's own code.
    source = {
        "revision": revision or "main",
        "local_files_only": local_files_only,
        "trust_remote_code": False,
    }
    try:
        config = AutoConfig.from_pretrained(folder_or_id, **source)
        reason = refusal(config)
        if reason:
            raise ModelError(f"model {folder_or_id} cannot be used: {reason}")
        if fetch is not None:
            fetch()
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
