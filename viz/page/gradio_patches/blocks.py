"""Blocks whose failures are a sentence for the user; the log has tracebacks of internal errors only."""

import logging
from copy import copy
from typing import Any

import gradio as gr
from gradio.blocks import Block
from markupsafe import escape

from pine_engine.errors import InputError
from viz.page.common.disk import Disk
from viz.page.common.failures import explain, is_request_error
from viz.page.common.limits import MAX_VALUES, TOO_MANY_VALUES
from viz.page.gradio_patches.values import refuse_file_types, refuse_values
from viz.page.jobs.connection_tracker import ConnectionTracker

log = logging.getLogger(__name__)


NOT_FROM_THE_PAGE = "Invalid request from the page. Reload and try again."


class GuardedBlocks(gr.Blocks):
    """Blocks for untrusted clients.

    Gradio hides a failure from the user and logs its traceback, also for invalid calls of private events,
    which could fill the log. `disk` is the quota of uploads; `no_files` is the reason why the page takes no
    files, or "".
    """

    disk: Disk
    no_files: str = ""

    def __init__(self, **options: Any) -> None:
        self.connections = ConnectionTracker()
        super().__init__(**options)

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *arguments: Any, **options: Any
    ) -> list[Any]:
        """Return the arguments of a function. Raises gr.Error for values that no page sends."""
        try:
            if self.no_files and any(isinstance(block, gr.UploadButton) for block in block_fn.inputs):
                raise InputError(self.no_files)
            if (count := len(inputs)) != (expected := len(block_fn.inputs)):
                raise InputError(f"Invalid number of arguments: got {count}, expected {expected}.")
            num_values = 0
            for block, value in zip(block_fn.inputs, inputs, strict=True):
                is_upload = isinstance(block, gr.UploadButton)
                num_values += refuse_values(value, allows_files=is_upload)
                if num_values > MAX_VALUES:
                    raise InputError(TOO_MANY_VALUES)
                if is_upload:
                    refuse_file_types(value, block.file_types)
                # gradio accepts a list in place of a choice.
                if isinstance(block, gr.Dropdown) and not block.multiselect and isinstance(value, list):
                    raise InputError(f"{block.label}: got several values, expected one.")
            values: list[Any] = await super().preprocess_data(block_fn, inputs, *arguments, **options)
            return values
        except gr.Error as error:  # gradio's own, such as for a number beyond a slider; it quotes the value
            raise gr.Error(str(escape(error.message)), print_exception=False) from error
        except InputError as error:
            raise gr.Error(str(escape(explain(error))), print_exception=False) from error
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if not is_request_error(cause):
                raise cause from None
            log.warning("Rejected call to %s from outside the page: %s", block_fn.name, type(error).__name__)
            raise gr.Error(NOT_FROM_THE_PAGE, print_exception=False) from error

    async def process_api(
        self, block_fn: Any, inputs: list[Any], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """Process an event as gradio does; raises only gr.Error, as HTML, which is not logged."""
        try:
            refuse_values(getattr(options.get("event_data"), "_data", None), allows_files=True)
            answer: dict[str, Any] = await super().process_api(block_fn, inputs, *arguments, **options)
            return answer
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            raise gr.Error(str(escape(explain(error))), print_exception=False) from error

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Return the data of each output, and skip widgets that the function did not return.

        Gradio recreates every output of an event, 1 to 2 ms each (gradio issue 12831).
        """
        match predictions:
            case {"__type__": "update", **more} if not more:  # gr.skip()
                mentioned = set()
            case dict() if predictions and all(isinstance(key, Block) for key in predictions):
                mentioned = {widget._id for widget in predictions}
            case _:
                sent: list[Any] = await super().postprocess_data(block_fn, predictions, state)
                return sent
        changed = copy(block_fn)
        changed.outputs = [widget for widget in block_fn.outputs if widget._id in mentioned]
        shown = iter(await super().postprocess_data(changed, predictions, state) if mentioned else ())
        return [
            next(shown) if widget._id in mentioned else None if widget.stateful else gr.skip()
            for widget in block_fn.outputs
        ]

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """Return the value of each output, first and last; differences for texts in between.

        Gradio sends differences to the previous update, which the browser applies to that update before it
        was shown; a busy browser then loses the previous one. Texts are still sent as differences.
        """
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
