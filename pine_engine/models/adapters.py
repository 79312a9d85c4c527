"""LoRA adapters: folders that peft has saved, loaded into the weights of their base model."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pine_engine.errors import ModelError
from pine_engine.models.support import model_errors, quantization_of
from pine_engine.optional_packages import import_extra

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
BASE = "base_model_name_or_path"


def is_adapter(folder: Path) -> bool:
    """Check whether a folder has an adapter instead of a whole model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").exists()


def base_of(folder: Path) -> str:
    """Return hub id or folder of the base model. Raises ModelError for an adapter without it or weights."""
    if not (folder / WEIGHTS).is_file():
        message = f"adapter {folder} has no {WEIGHTS}; save it with `save_pretrained` of peft"
        raise ModelError(message, field=WEIGHTS)
    with model_errors(f"adapter {folder}", f"expected {CONFIG} of peft", field=CONFIG):
        base = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get(BASE)
    if not isinstance(base, str) or not base:
        message = f"adapter {folder} names no base model; set {BASE} in {CONFIG} to a folder or hub id"
        raise ModelError(message, field=CONFIG)
    return base


@contextmanager
def errors_of_base(folder: Path | None, base: str) -> Iterator[None]:
    """Name the adapter in each ModelError of its base model inside the block; None for no adapter."""
    try:
        yield
    except ModelError as error:
        if folder is None:
            raise
        problem = f"{folder} is an adapter, and its base model {base} is missing: {str(error).rstrip('.')}"
        message = f"{problem}. Download the base model, or set {BASE} in {CONFIG} to its folder."
        raise ModelError(message, field=BASE) from error


def merge_adapter(model: "PreTrainedModel", folder: Path) -> "PreTrainedModel":
    """Return the model with the adapter added to its weights. Raises ModelError if peft cannot merge it."""
    if quantization_of(model.config):
        message = f"the base model of adapter {folder} is quantized; set {BASE} in {CONFIG} to another one"
        raise ModelError(message, field="quantization_config")
    peft = import_extra("peft", "peft")
    advice = "expected a LoRA adapter of its base model"
    with model_errors(f"adapter {folder}", advice, field=CONFIG), warnings.catch_warnings():
        # peft 0.21 reads a property that transformers 5.23 deprecates.
        warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)
        adapted = peft.PeftModel.from_pretrained(model, str(folder))
        merged: PreTrainedModel = adapted.merge_and_unload(safe_merge=True)
    return merged
