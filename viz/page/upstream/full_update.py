"""Blocks of which every update reaches the page, however late it looks."""

from typing import Any

import gradio as gr


class FullUpdateBlocks(gr.Blocks):
    """Of an update in a row gradio sends how it differs from the one before, and the browser writes that into
    the one before: also where that still waits to be shown, because a busy browser heard of both before it
    knew to which event they belong. What the first alone said is lost then, such as that Stop can be pressed
    from now on. Here an update is sent whole where it is more than a text.
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
        """What is sent for each output: at first and at last its value, else edits of the one before."""
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
