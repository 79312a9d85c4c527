"""Molecules: SMILES, data rows, split, predictor and metrics, and the shipped model."""

import itertools
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pine_engine import Engine, InputError
from pine_engine.lab.molecules.generate import generate_molecules, random_orders
from pine_engine.lab.molecules.metrics import compute_metrics, compute_references
from pine_engine.lab.molecules.predictor import Predictor
from pine_engine.lab.molecules.request_rows import (
    PROPERTIES,
    GeneratedMolecule,
    Molecule,
    canonical_smiles,
    read_molecules,
    split_molecules,
)
from pine_engine.models.load import SHIPPED
from tests.support.molecule_rows import SMILES, molecule, row, values, write_rows

MOLECULES = [molecule(smiles) for smiles in SMILES[:40]]


def canonical(smiles: str) -> str:
    found = canonical_smiles(smiles)
    assert found
    return found


def test_canonical_smiles_is_one_per_molecule_and_none_if_invalid(capfd: pytest.CaptureFixture[str]) -> None:
    assert {canonical_smiles(text) for text in ("CCO", "OCC", "C(O)C", "[CH3]CO")} == {"CCO"}
    invalid = ("", "C(", "C1CC", "FC(F)(F)(F)F", "CO ethanol", "CC\n", "water", "<s>")
    assert {canonical_smiles(text) for text in invalid} == {None}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("module", "call"),
    [("rdkit.Chem", lambda: canonical_smiles("C")), ("sklearn.kernel_ridge", lambda: Predictor(MOLECULES))],
)
def test_missing_package_raises_with_install_command(
    module: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="pip install"):
        call()


def test_read_molecules_returns_each_molecule_once(tmp_path: Path) -> None:
    shuffled = row("CCO")
    shuffled["documents"] = shuffled["documents"][::-1]
    path = write_rows(tmp_path / "m.jsonl", [shuffled, row("OCC"), row("CCN", license="")])
    molecules, sources = read_molecules(path)
    assert molecules == [Molecule(f"m-{one}", one, values(one)) for one in ("CCO", "CCN")]
    assert molecules[0].properties == tuple(map(float, values("CCO")))
    assert sources == ("written for tests (CC0-1.0)", "written for tests (no license given)")


@pytest.mark.parametrize(
    "change",
    [
        {"documents": [{"title": "alpha", "text": "1"}]},
        {"documents": [*row("C")["documents"], {"title": "mu", "text": "1"}]},
        {"documents": [{"title": name, "text": "5,9"} for name in PROPERTIES]},
        {"documents": [{"title": name, "text": "inf"} for name in PROPERTIES]},
        {"answers": ["C("]},
        {"answers": []},
    ],
)
def test_read_molecules_refuses_invalid_row_with_line(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write_rows(tmp_path / "m.jsonl", [row("CCO"), row("CCN", **change)])
    with pytest.raises(InputError, match=r"m\.jsonl, line 2: "):
        read_molecules(path)
    assert len(read_molecules(path, limit=1)[0]) == 1


def test_split_and_orders_depend_on_smiles_only() -> None:
    molecules = [Molecule("", f"{'C' * length}{end}", ()) for length in range(200) for end in "NOFS"]
    split = split_molecules(molecules)
    parts = {one.smiles: part for part, found in split.items() for one in found}
    assert len(parts) == len(molecules) == sum(map(len, split.values()))
    assert (parts["CCO"], parts["N"]) == ("train", "predictor")  # as for the shipped weights
    assert 340 < len(split["predictor"]) < 460 and 10 < len(split["held_out"]) < 40
    subset = random.Random(0).sample(molecules, 100)
    expected = {part: [one for one in subset if parts[one.smiles] == part] for part in split}
    assert split_molecules(subset) == expected
    orders = random_orders(MOLECULES[1], 720, 0)
    assert len(set(orders)) == 720
    assert random_orders(MOLECULES[1], 5, 0) == orders[:5] != random_orders(MOLECULES[1], 5, 1)


class LengthPredictor:
    def predict(self, smiles: Sequence[str]) -> Any:
        return np.array([[float(len(text))] * 6 for text in smiles]).reshape(len(smiles), 6)


PREDICTOR = cast(Predictor, LengthPredictor())


def request(size: int) -> Molecule:
    return Molecule(str(size), "C" * size, (str(size),) * 6)


def answers(method: str, *texts: tuple[int, int, str]) -> list[GeneratedMolecule]:
    """Answers by request, turn and text; a text with an exclamation mark is invalid."""
    return [
        GeneratedMolecule(method, index, turn, (turn, *range(5)), text, None if "!" in text else text)
        for index, turn, text in texts
    ]


def test_compute_metrics_matches_hand_calculation() -> None:
    generated = [
        *answers("vanilla", (0, 0, "CCC"), (0, 1, "CCCCC"), (1, 0, "CCC"), (1, 1, "!a")),
        *answers("pine", (0, 0, "CC"), (0, 1, "CC"), (1, 0, "!b"), (1, 1, "!b")),
        *answers("nia", (0, 0, "!a"), (0, 1, "!b"), (1, 0, "!b"), (1, 1, "!b")),
    ]
    vanilla, pine, nia = compute_metrics(generated, [request(3), request(4)], PREDICTOR, {"CCC", "CCCCCC"})
    assert (vanilla.method, vanilla.written, vanilla.valid) == ("vanilla", 4, 0.75)
    assert vanilla.unique == (1 / 2 + 1) / 2  # CCC twice in the first order, only CCCCC in the second
    assert vanilla.novel == 1 / 2  # of CCC and CCCCC
    assert vanilla.changed == 1
    assert vanilla.errors and vanilla.errors["mu"].mean == pytest.approx((0 + 2 + 1) / 3)
    assert vanilla.errors["mu"].n == 3
    assert vanilla.more_error is None
    assert (pine.valid, pine.unique, pine.novel, pine.changed) == (0.5, 1, 1, 0)
    assert pine.errors and pine.errors["cv"].mean == 1
    # Both methods have molecules for request 0 only: errors 1 and 1 against 0 and 2.
    assert pine.more_error and pine.more_error["cv"].mean == 0 and pine.more_error["cv"].n == 2
    assert (nia.valid, nia.unique, nia.novel, nia.changed) == (0, None, None, 0.5)
    assert nia.errors is None and nia.more_error is None


def test_interval_resamples_requests() -> None:
    """Ten orders of one request count as one request. The bounds are those of the first release."""
    texts = [(index, turn, "C" * (1 + index)) for index in range(8) for turn in range(10)]
    requests = [request(1) for _ in range(8)]
    (metric,) = compute_metrics(answers("pine", *texts), requests, PREDICTOR, set())
    assert metric.errors
    gap = metric.errors["gap"]
    assert (gap.mean, gap.low, gap.high) == pytest.approx((3.5, 2.0, 5.0), abs=1e-9)
    (single,) = compute_metrics(answers("pine", *texts[-10:]), requests, PREDICTOR, set())
    assert single.errors and single.errors["gap"].low == single.errors["gap"].high == 7


def test_compute_references_pairs_each_request_with_another() -> None:
    found = compute_references([request(size) for size in (2, 5, 9)], PREDICTOR)
    assert {error.mean for error in found["predictor"].values()} == {0}
    mean = found["mismatched_baseline"]["alpha"].mean
    assert mean == pytest.approx((3 + 4 + 7) / 3)  # the same for both cycles


def test_predictor_learns_properties_of_atom_counts() -> None:
    mixed = random.Random(0).sample(sorted(set(map(canonical, SMILES))), 80)
    known, unknown = ([molecule(smiles) for smiles in part] for part in (mixed[:50], mixed[50:]))
    predicted = Predictor(known).predict([one.smiles for one in unknown])
    true = np.array([one.properties for one in unknown])
    assert predicted.shape == true.shape
    assert (np.abs(predicted - true).mean(0) < 0.1 * true.std(0)).all()
    with pytest.raises(InputError):
        Predictor(known[:19])
    assert Predictor(known).predict([]).shape == (0, 6)


def test_predictor_learns_properties_of_bonds() -> None:
    """Alcohols and ethers with equal atoms and bonds: only the alcohols have the property."""
    chains = [("C" * length, "C" * (9 - length)) for length in range(1, 9)]
    alcohols = [canonical(f"{left}C(O){right}") for left, right in chains]
    ethers = [canonical(f"{left}OC{right}") for left, right in chains]
    known = [Molecule("", smiles, ("1",) * 6) for smiles in alcohols[::2] * 3]
    known += [Molecule("", smiles, ("0",) * 6) for smiles in ethers[::2] * 3]
    predictor = Predictor(known)
    assert predictor.predict(alcohols[1::2]).min() > 0.7
    assert predictor.predict(ethers[1::2]).max() < 0.3


ASSETS = Path(__file__).parents[3] / "assets"
FOLDER = SHIPPED / "molecules"
ALL_ORDERS = list(itertools.permutations(range(len(PROPERTIES))))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.load(str(FOLDER))


def page_example() -> Molecule:
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    (example,) = (example for example in examples if example["task"] == "qm9")
    texts = {document["title"]: document["text"] for document in example["documents"]}
    return Molecule("page", "", tuple(texts[name] for name in PROPERTIES))


def test_shipped_model_is_small_with_card() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in ("QM9 (CC0", "| license |", "| held-out loss | 0.", "| valid | 9", "tools.train_molecules"):
        assert words in card


@pytest.mark.parametrize(("method", "changes"), [("vanilla", True), ("pine", False)])
def test_page_example_depends_on_order_under_vanilla_only(engine: Engine, method: str, changes: bool) -> None:
    answers = generate_molecules(engine, [page_example()], [ALL_ORDERS[::90]], [method])
    assert answers[0].smiles is not None and answers[0].smiles == canonical_smiles(answers[0].text)
    assert (len({answer.text for answer in answers}) > 1) == changes
