"""The shuffle: the same question under one order of the documents after the other."""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gradio as gr

from viz.page.failures import notice
from viz.page.form import read_form
from viz.page.running import MODEL_EVENT, PRIVATE_EVENT, StopFlag, run_with_engine
from viz.page.source import EngineSource
from viz.page.workspace import Workspace, wire_stop
from viz.shuffle import shuffle_table

if TYPE_CHECKING:  # imports torch, which would keep the page waiting
    from pine_engine.engine import Engine

ALL_ORDERS_UP_TO = 4
"""With so many documents or fewer every order is tried; with more, a seeded sample."""
MOST_ORDERS = 24
DEFAULT_ORDERS = 6


@dataclass(frozen=True)
class ShufflePanel:
    """The widgets of the shuffle. stopping: state, whether Stop was pressed."""

    shuffle: gr.Button
    stop: gr.Button
    sample: gr.Row
    count: gr.Slider
    seed: gr.Number
    status: gr.HTML
    table: gr.HTML
    stopping: gr.State


def orders_sentence(num_documents: int, count: int, seed: int) -> str:
    """Which orders Shuffle will try, in words."""
    if num_documents < 2:
        return "There is one order only; add a document."
    if num_documents <= ALL_ORDERS_UP_TO:
        return f"{num_documents} documents: all {math.factorial(num_documents)} orders will be tried."
    return f"{num_documents} documents: the order as entered and {count - 1} random ones, seed {seed}."


def build_shuffle(num_documents: int) -> ShufflePanel:
    """Makes the widgets. num_documents: how many the editor shows at first."""
    with gr.Column(elem_id="shuffle-section", elem_classes="page-section"):
        gr.HTML(
            "<h2>Shuffle</h2><p>Every order is computed from scratch. A method that depends on the order "
            "changes its answer; one that does not must repeat it, with a logit difference of 0.0.</p>"
        )
        with gr.Row(elem_classes="page-row page-shuffle-bar"):
            shuffle = gr.Button("Shuffle the documents", variant="primary", elem_id="shuffle", min_width=200)
            stop = gr.Button("Stop", variant="stop", elem_id="stop-shuffle", interactive=False, min_width=80)
            with gr.Row(visible=num_documents > ALL_ORDERS_UP_TO, elem_classes="page-row") as sample:
                count = gr.Slider(
                    2,
                    MOST_ORDERS,
                    value=DEFAULT_ORDERS,
                    step=1,
                    label="Orders to try",
                    elem_id="orders",
                    min_width=160,
                )
                seed = gr.Number(
                    0, label="Seed of the random orders", precision=0, elem_id="seed", min_width=120
                )
        status = gr.HTML(notice(orders_sentence(num_documents, DEFAULT_ORDERS, 0)), elem_id="shuffle-status")
        table = gr.HTML(shuffle_table([], []), elem_id="shuffle-table")
    return ShufflePanel(shuffle, stop, sample, count, seed, status, table, gr.State(StopFlag()))


def wire_shuffle(panel: ShufflePanel, page: Workspace, source: EngineSource) -> None:
    """Connects the widgets."""

    def announce(identities: Sequence[int], count: int, seed: int | None) -> dict[Any, Any]:
        return {
            panel.sample: gr.update(visible=len(identities) > ALL_ORDERS_UP_TO),
            panel.status: notice(orders_sentence(len(identities), count, seed or 0)),
        }

    gr.on(
        [page.editor.identities.change, panel.count.change, panel.seed.change],
        announce,
        [page.editor.identities, panel.count, panel.seed],
        [panel.sample, panel.status],
        **PRIVATE_EVENT,
    )

    def idle(html: str) -> dict[Any, Any]:
        return {panel.status: html, panel.stop: gr.update(interactive=False)}

    def shuffle(
        stop: StopFlag, count: float, seed: float | None, *values: Any
    ) -> Generator[dict[Any, Any], None, None]:
        form = read_form(*values)

        def work(engine: "Engine") -> Generator[dict[Any, Any], None, None]:
            from viz.page import shuffling  # imports torch, which is there by now

            sentence = ""
            for view in shuffling.shuffle(engine, form, count=int(count), seed=int(seed or 0)):
                sentence = view.sentence
                updates: dict[Any, Any] = {panel.status: notice(sentence)}
                yield updates if view.table is None else updates | {panel.table: view.table}
            yield idle(notice(sentence))

        yield {
            panel.status: notice("Starting"),
            panel.stop: gr.update(interactive=True),
            panel.table: shuffle_table([], []),
        }
        yield from run_with_engine(
            source,
            work,
            stop=stop,
            say=lambda sentence: {panel.status: notice(sentence)},
            fail=lambda sentence: idle(notice(sentence, kind="error")),
            stopped=lambda: idle(notice("Stopped. The orders tried so far are kept.")),
        )

    panel.shuffle.click(
        shuffle,
        [panel.stopping, panel.count, panel.seed, *page.inputs],
        [panel.status, panel.stop, panel.table],
        show_progress="minimal",
        show_progress_on=panel.status,
        api_visibility="private",
        **MODEL_EVENT,
    )
    wire_stop(panel.stop, panel.stopping)
