"""Blocks that send whole updates."""

from typing import Any

import gradio as gr


class FullUpdateBlocks(gr.Blocks):
    """Blocks that send updates as whole values instead of differences.

    Gradio sends differences to the previous update, which the browser applies to that update before it was
    shown; a busy browser then loses the previous one. Texts are still sent as differences.
    """

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """Return the value of each output, first and last; differences for texts in between."""
        values = list(data)
        is_first = session_hash is None or run not in self.pending_diff_streams[session_hash]
        sent: list[Any] = super().handle_streaming_diffs(
            block_fn, data, session_hash, run, final, simple_format
        )
        if is_first or final or simple_format:
            return sent
        return [
            [["replace", [], value]] if any(path for _, path, _ in edits) else edits
            for value, edits in zip(values, sent, strict=True)
        ]
