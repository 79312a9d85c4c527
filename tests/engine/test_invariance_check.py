"""Equal bits are promised of a model only where a shuffle at loading has changed none."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine.benchmark import random_models
from pine_engine.console import terminal
from pine_engine.engine.engine import Engine
from pine_engine.engine.invariance_check import LENGTHS, TRIED, changes_by_order
from tests.support.families import FAMILIES, make
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.jobs.loading import EngineSource
from viz.page.shuffle.shuffling import caption_of


class KnowsItsPlace(nn.Module):
    """A product of a family's own, as torch makes them: the last row is off by a little."""

    def forward(self, rows: Tensor) -> Tensor:
        places = torch.arange(rows.shape[1])[:, None]
        return rows * (1 + 1e-6 * (places == rows.shape[1] - 9))


@pytest.mark.parametrize("name", ["llama", "mixtral", "falcon", "gemma3_text", "nemotron"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_of_models_that_compute_row_by_row_equal_bits_are_promised(name: str, dtype: torch.dtype) -> None:
    family = FAMILIES[name]
    assert Engine(make(family.kind, dtype, **family.options)).invariance_warning is None


def test_of_a_model_whose_rows_know_their_place_they_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    model = make("llama")
    model.model.layers[0].mlp = nn.Sequential(model.model.layers[0].mlp, KnowsItsPlace())
    engine = Engine(model, name="uneven")
    assert engine.invariance_warning is not None
    assert "uneven" in engine.invariance_warning and "(float32, cpu, " in engine.invariance_warning
    assert (
        "changed logits of PCW (up to" in engine.invariance_warning
        and "PINE (up to" in engine.invariance_warning
    )


def test_the_command_line_says_so_at_loading(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*_: Any, **__: Any) -> Engine:
        monkeypatch.setattr(Engine, "invariance_warning", "Equal bits are not promised.")
        return Engine(make("llama"))

    monkeypatch.setattr(random_models, "load_engine", load)
    terminal.load("any", "float32", "cpu")
    assert capsys.readouterr().err == "Equal bits are not promised.\n"


def test_the_page_says_so_beside_the_model_in_the_log_and_over_its_orders(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(make("llama"), name="uneven")
    form = Form("retrieval_qa", "Which?", "Answer.", ("pine",), 3, entries_from([("Varo", "red")]))
    told = [(_status(engine), caption_of(engine, form))]
    assert caplog.messages == []
    monkeypatch.setattr(Engine, "invariance_warning", "Equal bits are not promised.")
    told.append((_status(engine), caption_of(engine, form)))
    status, caption = zip(*told, strict=True)
    assert status[1] == status[0] + " · the order can change last bits"
    assert caption[1] == f"Equal bits are not promised. {caption[0]}"
    assert caplog.messages == ["Equal bits are not promised."]


def _status(engine: Engine) -> str:
    source = EngineSource(lambda: engine, "uneven")
    source.load_here()
    return source.status.sentence


def test_documents_of_several_lengths_are_tried_in_two_orders() -> None:
    asked = []

    def prefill(layout: Any, method: Any) -> Tensor:
        asked.append((method.name, layout.lengths.tolist()))
        return torch.zeros(1, 3)

    assert changes_by_order(prefill, 97) == {}
    lengths = list(LENGTHS[1:])
    moved = [lengths[place] for place in (3, 0, 4, 1, 2)]
    assert asked == [(name, order) for name in TRIED for order in (lengths, moved)]
    assert 1 in lengths and len(set(lengths)) < len(lengths)
