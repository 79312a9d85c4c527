"""Models and tokenizers from checkpoints: a folder, a hub snapshot or a GGUF file.

Checkpoints are data: code in them is never run, pickled weights are never opened, and a checkpoint that lacks
weights is rejected.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from huggingface_hub import get_local_safetensors_metadata
from huggingface_hub.errors import NotASafetensorsRepoError
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto import modeling_auto
from transformers.quantizers.auto import AutoHfQuantizer
from transformers.utils import logging
from transformers.utils.hub import cached_file

from pine_engine.errors import ModelError
from pine_engine.models.dtypes import LOADED_IN, Dtype, RequestedDtype, resolve_dtype, stored_dtype
from pine_engine.models.support import check_sizes, model_errors, quantization_of, refusal

if TYPE_CHECKING:  # huggingface_hub exports it for types only
    from huggingface_hub import SafetensorsRepoMetadata

MAX_WEIGHTS_PER_BYTE = 8  # weights of 1 bit in one byte of a checkpoint

UNREADABLE = {"hqq": "transformers 5 cannot read it"}
CPU_KERNELS = "PINE has no batch-invariant replacement for the CPU kernels of gptqmodel"
UNREADABLE_ON_CPU = UNREADABLE | {"gptq": CPU_KERNELS, "awq": CPU_KERNELS}
"""Reasons by name of a quantization, whichever packages are installed."""

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def read_config(where: str | Path, **source: Any) -> PreTrainedConfig:
    """Return the config of a folder or a hub id; `source` has options of `from_pretrained` for its place."""
    # False: the default None would prompt on the terminal to run the code of the model.
    source["trust_remote_code"] = False
    check_sizes(PreTrainedConfig.get_config_dict(where, **source)[0])
    config: PreTrainedConfig = transformers.AutoConfig.from_pretrained(where, **source)
    return config


def read_usable_config(where: str, **source: Any) -> PreTrainedConfig:
    """Return the config of a model that PINE can run. Raises ModelError for other models."""
    with model_errors(f"model {where}", "expected one that transformers knows", field="config"):
        config = read_config(where, **source)
        if reason := refusal(config):
            raise ModelError(reason, field="architecture")
        check_quantization(config)
    return config


def check_quantization(config: PreTrainedConfig) -> None:
    """Raise ModelError, before a download, if transformers cannot read the quantized weights of a model.

    transformers loads weights of an unknown quantization as they are, without their scales.
    """
    quantization = quantization_of(config)
    mlx = getattr(config, "quantization", None) or {}
    if isinstance(mlx, dict) and {"bits", "group_size"} <= mlx.keys():
        message = f"MLX, {mlx['bits']} bits: mlx_lm has packed its weights, which transformers cannot read"
        advice = "use the original weights, or unpack them: `mlx_lm.convert --hf-path FOLDER --dequantize`"
        raise ModelError(f"{message}; {advice}", field="quantization")
    if not quantization:
        return
    method = str(quantization.get("quant_method", "unnamed"))
    advice = "use weights that are not quantized"
    with model_errors(f"its {method} quantization", advice, field="quantization_config"):
        reason = (UNREADABLE if torch.cuda.is_available() else UNREADABLE_ON_CPU).get(method)
        if not reason and not AutoHfQuantizer.supports_quant_method(quantization):
            reason = "transformers does not know it"
        if reason:
            raise ModelError(f"{reason}; {advice}", field="quantization_config")
        device_map = {"": "cuda"} if torch.cuda.is_available() else None
        AutoHfQuantizer.from_config(quantization).validate_environment(device_map=device_map)


def read_headers(folder: Path) -> "SafetensorsRepoMetadata":
    """Return the headers of the weight files. Raises ModelError if a file is missing or truncated."""
    try:
        metadata = get_local_safetensors_metadata(folder)
    except (FileNotFoundError, NotASafetensorsRepoError) as error:
        name = Path(getattr(error, "filename", None) or "model.safetensors").name
        message = f"a file with its weights is missing: {name}; bring it here, or load it from the hub"
        raise ModelError(message, field=name) from error
    for name, header in metadata.files_metadata.items():
        data_bytes = max((tensor.data_offsets[1] for tensor in header.tensors.values()), default=0)
        if (folder / name).stat().st_size < data_bytes:
            message = f"its files are damaged: {name} is truncated; bring them here again"
            raise ModelError(message, field=name)
    return metadata


def check_fits(config: PreTrainedConfig, folder: Path) -> None:
    """Raise ModelError if a config describes a larger model than the weights in its folder.

    transformers would fill missing weights with random numbers, without limit of time and memory.
    """
    try:
        headers = read_headers(folder)
    except ModelError:
        return  # transformers downloads missing files, or reports them
    num_tensors = len(headers.weight_map)
    num_bytes = sum((folder / name).stat().st_size for name in headers.files_metadata)
    text = config.get_text_config()
    names = ("num_hidden_layers", "vocab_size", "intermediate_size", "num_attention_heads", "head_dim")
    layers, vocabulary, inner, heads, head_dim = (getattr(text, name, None) or 0 for name in names)
    hidden = getattr(text, "hidden_size", None) or 0
    widest = hidden * max(layers, vocabulary, inner, heads * head_dim)
    if layers > num_tensors or widest > MAX_WEIGHTS_PER_BYTE * num_bytes:
        shape = f"got {layers:,} layers of width {hidden:,}, {num_tensors:,} tensors and {num_bytes:,} bytes"
        message = f"its config describes a larger model than its weights: {shape}; use their config"
        raise ModelError(message, field="config")


def read_safetensors(
    where: str,
    config: PreTrainedConfig,
    *,
    dtype: RequestedDtype,
    device: str,
    source: dict[str, Any],
    **options: Any,
) -> Loaded:
    """Return model and tokenizer of a folder or a hub id; `options` are those of `from_pretrained`."""
    with model_errors(f"model {where}", "expected a causal language model with safetensors", field="weights"):
        check_fits(config, Path(str(cached_file(where, "config.json", **source))).parent)
        # Models with images are loaded as a whole unless transformers has a text-only class for them.
        with_images = set(modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
        with_images -= modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
        kind: Any = transformers.AutoModelForCausalLM
        if config.model_type in with_images:
            kind = transformers.AutoModelForImageTextToText
        method = quantization_of(config).get("quant_method")
        if method == "compressed-tensors":
            # Otherwise the first forward pass decompresses the weights, and each pass may round activations.
            config.quantization_config["dequantize"] = True
            options["config"] = config
        if method in ("bitsandbytes", "torchao") and dtype == "auto":
            dtype = stored_dtype(config)  # transformers keeps it
        resolved = resolve_dtype(dtype, device, stored=stored_dtype(config))
        return _read(where, kind, resolved, use_safetensors=True, source=source, **options)


def read_gguf(gguf: Path, *, dtype: RequestedDtype, device: str, **options: Any) -> Loaded:
    """Return model, with dense weights, and tokenizer of a GGUF file; options as in `read_safetensors`."""
    source = {"gguf_file": gguf.name, "local_files_only": True}
    advice = "expected a whole GGUF file of an architecture that transformers knows"
    with model_errors(f"model {gguf}", advice, field="weights"):
        check_sizes(PreTrainedConfig.get_config_dict(gguf.parent, trust_remote_code=False, **source)[0])
        # Without dequantize=True the config stays "quantized", and transformers refuses to save the model; if
        # a kernel for packed weights is installed, the weights would stay packed.
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
        resolved = resolve_dtype(dtype, device, stored="4bit")
        return _read(gguf.parent, transformers.AutoModelForCausalLM, resolved, source=source, **options)


def _read(where: str | Path, kind: Any, dtype: Dtype, *, source: dict[str, Any], **options: Any) -> Loaded:
    """Return model and tokenizer. Raises ModelError if transformers filled missing weights at random."""
    source = source | {"trust_remote_code": False}
    torch_dtype = getattr(torch, LOADED_IN[dtype])
    model, report = kind.from_pretrained(
        where, output_loading_info=True, dtype=torch_dtype, **source, **options
    )
    if missing := sorted(report["missing_keys"]):
        message = f"{len(missing)} of its weights are missing, first {missing[0]}; use a complete checkpoint"
        raise ModelError(message, field=missing[0])
    with model_errors("", "save the tokenizer in the same folder", field="tokenizer"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, **source)
    return model, tokenizer


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer in the folder of an adapter, None without one. Raises ModelError."""
    if not (folder / "tokenizer_config.json").is_file():
        return None
    with model_errors(f"tokenizer of adapter {folder}", "save it with the adapter", field="tokenizer"):
        tokenizer: PreTrainedTokenizerBase = transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False
        )
    return tokenizer


@contextmanager
def quiet_transformers(*, warns: bool = True) -> Iterator[None]:
    """Hide the progress bars of transformers; with `warns=False` also its warnings."""
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
