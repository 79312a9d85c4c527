"""Clusters of orders, against scikit-learn and hidden states of transformers, and the wrapper around them."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

import viz
from pine_engine import METHODS, Document, Engine, InputError, LabeledRequest
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine import passes
from pine_engine.engine.hidden_states import record_hidden_states
from pine_engine.lab.debias.clusters import cluster_states
from pine_engine.lab.debias.combining import DebiasResult
from pine_engine.lab.debias.debias import run_debias
from pine_engine.lab.debias.plan import in_order, plan_debias
from pine_engine.prompts.orders import all_orders
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.measured_rows import QUESTION, evaluate_records
from tests.support.tokenizers import letter_tokenizer

REQUEST = LabeledRequest(
    question="Wer hat den Schlüssel?",
    documents=[Document("Ann hat ihn."), Document("Ben hat ihn.", "T"), Document("Cy.")],
)


NORM_ROUNDING = 2e-6
"""The last norm of Llama is computed in float32 in every dtype; its values are up to about 4."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64, max_context_length=900), letter_tokenizer())


def groups(count: int, sizes: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Return states around centers that are far from each other."""
    random = np.random.default_rng(seed)
    centers = random.normal(size=(len(sizes), count)) * 10
    return np.concatenate([center + random.normal(size=(size, count)) * 0.1
                           for center, size in zip(centers, sizes, strict=True)])  # fmt: skip


@pytest.mark.parametrize("sizes", [(14, 10), (3, 12, 9), (60, 40, 12, 8)])
def test_clusters_equal_those_of_the_authors_definition(sizes: tuple[int, ...]) -> None:
    states = groups(64, sizes, seed=len(sizes))
    reduced = PCA(n_components=min(30, len(states))).fit_transform(states)
    units = reduced / np.linalg.norm(reduced, axis=1, keepdims=True)
    similarity = np.exp(-(1 - units @ units.T) / 0.1)
    scale = np.diag(similarity.sum(1) ** -0.5)
    gaps = np.diff(eigh(np.eye(len(states)) - scale @ similarity @ scale)[0][:21])
    count = max(2, int(np.argmax(gaps)) + 1)
    fitted = KMeans(n_clusters=count, random_state=42, n_init=10).fit(reduced)
    order = np.random.default_rng(0).permutation(len(states)).tolist()
    found = cluster_states([(index,) for index in order], states[order])
    expected = fitted.labels_[order]
    assert found.sizes == tuple(sorted(np.bincount(expected).tolist(), reverse=True))
    pairs = set(zip(found.labels, expected.tolist(), strict=True))
    assert len(pairs) == len(found.sizes) == count
    for label, nearest in enumerate(found.representatives):
        (other,) = {theirs for ours, theirs in pairs if ours == label}
        distances = np.linalg.norm(reduced[order] - fitted.cluster_centers_[other], axis=1)
        assert nearest == np.where(expected == other, distances, np.inf).argmin()
    spread = np.abs(np.array(found.points)) - np.abs(reduced[order][:, :2])  # signs are arbitrary
    assert np.abs(spread).max() < 1e-8


def test_equal_states_are_one_cluster() -> None:
    found = cluster_states([(0, 1), (1, 0)], np.ones((2, 5)))
    assert (found.sizes, found.representatives, found.points) == ((2,), (0,), ((0.0, 0.0),) * 2)
    assert cluster_states([(0,)], np.ones((1, 5))).sizes == (1,)
    two = cluster_states([(0, 1), (1, 0)], np.eye(2))
    assert (two.sizes, two.representatives) == ((1, 1), (0, 1))


def result_of(engine: Engine, request: LabeledRequest, **options: Any) -> DebiasResult:
    plan = plan_debias([request], wrapper="representative", max_new_tokens=4, **options)
    *_, last = run_debias(engine, plan)
    assert isinstance(last, DebiasResult)
    return last


def test_hidden_states_are_those_of_transformers(engine: Engine) -> None:
    layout = REQUEST.tokenize(engine)
    with torch.inference_mode():
        outputs = engine.model(torch.tensor([layout.ids]), output_hidden_states=True)
    with torch.inference_mode(), record_hidden_states(engine) as states:
        passes.prefill(layout, METHODS["vanilla"], passes.PassOptions(engine.patched_models))
    expected = outputs.hidden_states[-1][0, -1].numpy()
    np.testing.assert_allclose(states[0], expected, rtol=0, atol=NORM_ROUNDING)


def test_answer_is_that_of_the_order_nearest_to_the_center(engine: Engine) -> None:
    result = result_of(engine, REQUEST)
    clusters = result.clusters
    assert clusters and set(clusters.orders) == set(all_orders(3)) and sum(clusters.sizes) == 6
    states = []
    for order in clusters.orders:
        with torch.inference_mode():
            ids = torch.tensor([in_order(REQUEST, order).tokenize(engine).ids])
            states.append(engine.model(ids, output_hidden_states=True).hidden_states[-1][0, -1].numpy())
    expected = cluster_states(list(clusters.orders), np.stack(states))
    assert (clusters.labels, clusters.representatives) == (expected.labels, expected.representatives)
    for answer, index in zip(clusters.answers, clusters.representatives, strict=True):
        layout = in_order(REQUEST, clusters.orders[index]).tokenize(engine)
        assert answer == engine.run(layout, methods="vanilla", max_new_tokens=4).answers["vanilla"].text
    assert result.answer == clusters.answers[0]
    figure = viz.plot_clusters(clusters)
    assert [len(trace.x) for trace in figure.data] == list(clusters.sizes)
    assert [list(trace.marker.symbol).count("star") for trace in figure.data] == [1] * len(clusters.sizes)
    drawn = {(float(x), float(y)) for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True)}
    assert drawn == {(float(np.float32(x)), float(np.float32(y))) for x, y in clusters.points}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[1:])
def test_answer_does_not_depend_on_the_input_order(engine: Engine, order: tuple[int, ...]) -> None:
    first, moved = (result_of(engine, request) for request in (REQUEST, in_order(REQUEST, order)))
    assert moved.answer == first.answer
    assert moved.clusters and first.clusters and moved.clusters.answers == first.clusters.answers
    contents = [[order[index] for index in one] for one in moved.clusters.orders]
    assert contents == [list(one) for one in first.clusters.orders]


def test_record_has_the_answer_of_debias(engine: Engine) -> None:
    example = QUESTION.model_copy(update={"documents": QUESTION.documents[:3]})
    found = evaluate_records(
        engine, [example], methods=["representative"], order_names=["as-is", "reversed"], max_new_tokens=4
    )
    expected = result_of(engine, LabeledRequest.model_validate(example.request_fields()))
    assert [record.error for record in found.values()] == [None, None]
    assert {record.text for record in found.values()} == {expected.answer}


REFUSED: list[tuple[Callable[[Engine], object], str]] = [
    (lambda engine: result_of(engine, REQUEST, base="nbce"), "base"),
    (lambda _: list(run_debias(Endpoint("http://127.0.0.1/v1", "m"),
                               plan_debias([REQUEST], wrapper="representative"))), "wrapper"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "field"), REFUSED)
def test_backend_or_base_without_one_hidden_state_is_refused(
    engine: Engine, run: Callable[[Engine], object], field: str
) -> None:
    with pytest.raises(InputError, check=has_field(field)):
        run(engine)
