"""Models of Ollama: a manifest per name and tag, whose layers are files in the folder of blobs."""

import json
from pathlib import Path

from pine_engine.errors import ModelError

BLOB = "sha256-"  # start of the names of blobs
LAYER = "application/vnd.ollama.image."  # start of the media types of layers
MAX_BYTES = 1_000_000  # of a manifest


def find_weights(path: Path) -> Path | None:
    """Return the GGUF file that a manifest names, None if a file is no manifest.

    Raises ModelError for a model that is not one GGUF file, and for a file that is missing.
    """
    try:
        content = json.loads(path.read_bytes()) if path.stat().st_size <= MAX_BYTES else {}
        layers = [(layer["mediaType"].removeprefix(LAYER), layer["digest"]) for layer in content["layers"]]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    folder = next((parent.parent for parent in path.parents if parent.name == "manifests"), None)
    if folder is None:
        return None
    kinds = [kind for kind, _ in layers]
    if kinds.count("model") != 1 or "adapter" in kinds:
        reason = "has an adapter" if "adapter" in kinds else "is not one GGUF file"
        raise ModelError(f"{path} of Ollama {reason}; give a model in one GGUF file", field="model")
    weights: Path = folder / "blobs" / dict(layers)["model"].replace(":", "-")
    if not weights.is_file():
        raise ModelError(f"{weights} is missing; bring it with `ollama pull`", field="model")
    return weights
