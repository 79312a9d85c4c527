"""What a run found, as plain JSON objects: answers with their times, and what was seen of the documents."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.events import RunResult


def compare_report(engine: "Engine", result: "RunResult") -> dict[str, Any]:
    """Answers of one run: model, dtype, and for each method text, tokens, and times in seconds."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "results": [
            {
                "method": answer.method,
                "text": answer.text,
                "tokens": len(answer.token_ids),
                "prefill_s": answer.prefill_s,
                "decode_s_per_token": answer.decode_s_per_token,
            }
            for answer in result.answers.values()
        ],
    }


def trace_report(engine: "Engine", result: "RunResult") -> dict[str, Any]:
    """What the last token of the prompt, which writes the answer's first, sees of the documents.

    For each method of a traced run by layer, query head and document in input order: the position of its
    first token, its importance (None for methods that do not rank), and the share of attention that goes to
    the prefix, each document and the suffix. Methods that place alike everywhere have one layer and head.
    """
    return {"model": engine.model_name, "dtype": engine.dtype, **traced(result)}


def traced(result: "RunResult") -> dict[str, Any]:
    """The report of a trace, without the model's name and dtype."""
    layout, last = result.layout, result.layout.suffix_length - 1
    return {
        "prefix_tokens": layout.prefix_length,
        "document_tokens": layout.lengths.tolist(),
        "suffix_tokens": layout.suffix_length,
        "results": [
            {
                "method": method,
                "text": result.answers[method].text,
                "starts": trace.suffix_starts[:, :, last].tolist(),
                "importance": _at(trace.suffix_importance, last),
                "attention": _at(trace.suffix_attention, last),
            }
            for method, trace in result.traces.items()
        ],
    }


def _at(values: NDArray[np.float32] | None, query: int) -> dict[str, Any] | None:
    return None if values is None else values[:, :, query].tolist()
