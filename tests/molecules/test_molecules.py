"""Molecules as data: spellings, halves, tokens, what a model is shown, and what its answers are worth."""

import dataclasses
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.errors import InputError
from pine_engine.molecules import predictor
from pine_engine.molecules.chemistry import canonical_smiles, random_smiles
from pine_engine.molecules.descriptors import Descriptors, describe
from pine_engine.molecules.generate import WrittenMolecule, random_orders
from pine_engine.molecules.metrics import judge, references
from pine_engine.molecules.predictor import Predictor
from pine_engine.molecules.rows import PROPERTIES, Molecule, read_molecules, split_halves
from pine_engine.molecules.tokenizer import ANY_SPELLING, CANONICAL, LETTERS, build_tokenizer
from pine_engine.molecules.training_batches import TrainingBatches, held_out_batch, item, question, to_batch
from pine_engine.prompts.layout import tokenize
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import get_task
from tests.support.molecule_rows import SMILES, molecule, row, values, write_rows

TOKENIZER = build_tokenizer()
BUTANOL = molecule("CCCCO")
SOME = [molecule(smiles) for smiles in SMILES[:40]]


def canonical(smiles: str) -> str:
    found = canonical_smiles(smiles)
    assert found
    return found


# spellings


@pytest.mark.parametrize("spelling", ["CCO", "OCC", "C(O)C", "[CH3]CO"])
def test_all_spellings_of_a_molecule_are_one(spelling: str) -> None:
    assert canonical_smiles(spelling) == "CCO"


@pytest.mark.parametrize("text", ["", "C(", "C1CC", "FC(F)(F)(F)F", "CO ethanol", "CC\n", "water", "<s>"])
def test_what_is_no_molecule_has_no_spelling(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert canonical_smiles(text) is None
    assert capfd.readouterr() == ("", "")


def test_a_random_spelling_is_the_same_molecule_and_follows_from_its_seed() -> None:
    spellings = [random_smiles("CC(=O)NC1CC1", seed) for seed in range(20)]
    assert spellings == [random_smiles("CC(=O)NC1CC1", seed) for seed in range(20)]
    assert len(set(spellings)) > 5
    assert {canonical_smiles(spelling) for spelling in spellings} == {canonical("CC(=O)NC1CC1")}


@pytest.mark.parametrize(
    ("module", "ask", "sentence"),
    [
        ("rdkit.Chem", lambda: canonical_smiles("C"), "RDKit is not installed.*pip install"),
        ("sklearn.kernel_ridge", lambda: Predictor(SOME), "scikit-learn is not installed.*pip install"),
    ],
)
def test_a_missing_package_is_said_with_the_way_to_install_it(
    module: str, ask: Callable[[], object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=sentence):
        ask()


# rows and halves


def test_rows_become_molecules_each_once(tmp_path: Path) -> None:
    shuffled = row("CCO")
    shuffled["documents"] = shuffled["documents"][::-1]
    given = read_molecules(write_rows(tmp_path / "m.jsonl", [shuffled, row("OCC"), row("CCN", license="")]))
    assert given.molecules == [
        Molecule("m-CCO", "CCO", values("CCO")),
        Molecule("m-CCN", "CCN", values("CCN")),
    ]
    assert given.molecules[0].properties == tuple(map(float, values("CCO")))
    assert given.sources == ("written for tests (CC0-1.0)", "written for tests (no licence given)")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"documents": [{"title": "alpha", "text": "1"}]},
         r"m.jsonl, line 2: the documents are titled alpha; give each of alpha, homo, .*, cv once$"),
        ({"documents": [*row("C")["documents"], {"title": "mu", "text": "1"}]}, "line 2: the documents are"),
        ({"documents": [{"title": name, "text": "5,9"} for name in PROPERTIES]},
         "line 2: alpha is '5,9'; give a number"),
        ({"documents": [{"title": name, "text": "inf"} for name in PROPERTIES]}, "line 2: alpha is 'inf'"),
        ({"answers": ["C("]}, r"line 2: 'C\(' is no molecule; give a SMILES string"),
        ({"answers": []}, "line 2: answers: got 0 items, expected 1 or more"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_molecule_is_named(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    path = write_rows(tmp_path / "m.jsonl", [row("CCO"), row("CCN", **change)])
    with pytest.raises(InputError, match=sentence):
        read_molecules(path)
    assert len(read_molecules(path, limit=1).molecules) == 1


@given(st.permutations(range(len(SOME))), st.integers(0, len(SOME)))
def test_a_molecule_is_in_the_same_half_wherever_it_stands(order: list[int], count: int) -> None:
    def halves_of(molecules: list[Molecule]) -> dict[str, str]:
        parts = dataclasses.asdict(split_halves(molecules))
        placed = [(one["smiles"], name) for name, part in parts.items() for one in part]
        assert len(placed) == len(molecules)
        return dict(placed)

    whole = halves_of(SOME)
    some = halves_of([SOME[place] for place in order[:count]])
    assert some == {smiles: whole[smiles] for smiles in some}


def test_halves_are_halves_and_a_twentieth_is_held_out() -> None:
    many = [Molecule("", f"{'C' * length}{end}", ()) for length in range(200) for end in "NOFS"]
    halves = split_halves(many)
    assert 340 < len(halves.judging) < 460
    assert 10 < len(halves.held_out) < 40


# tokens


def test_names_are_tokens_and_numbers_are_cut_behind_two_decimals() -> None:
    ids = TOKENIZER("homo*-5.8799* mu*0* ")["input_ids"]
    assert TOKENIZER.convert_ids_to_tokens(ids) == [
        *("homo*", "-", "5", ".", "8", "7", "* "),
        *("mu*", "0", "* "),
    ]


@given(st.text(st.sampled_from(LETTERS), max_size=30))
def test_a_smiles_is_read_back_as_it_was_written(text: str) -> None:
    bare = text.replace(".", "").replace("* ", "")
    assert TOKENIZER.decode(TOKENIZER(bare)["input_ids"], skip_special_tokens=True) == bare


@given(
    st.permutations(list(PROPERTIES)),
    st.lists(st.decimals(-100, 200, places=4).map(str), min_size=6, max_size=6),
)
def test_the_prompt_of_the_task_is_what_the_model_was_trained_on(names: list[str], texts: list[str]) -> None:
    documents = [Document(text, name) for name, text in zip(names, texts, strict=True)]
    layout = tokenize(get_task("qm9").prompt(TOKENIZER, question="", documents=documents), TOKENIZER)
    items = [item(name, text) for name, text in zip(names, texts, strict=True)]
    assert list(layout.ids) == TOKENIZER(question(items))["input_ids"]
    assert (len(layout.prefix), len(layout.suffix)) == (1, 1)


# lessons


def lessons(molecules: Sequence[Molecule], **options: Any) -> TrainingBatches:
    chosen = {"seed": 0, "batch_size": 8, "jitter": 0.0, "spelling": 0.0, **options}
    return TrainingBatches(TOKENIZER, molecules, **chosen)


def shown(of: TrainingBatches, steps: int) -> list[tuple[str, str]]:
    """Question and answer of every example, read back from the tokens."""
    pairs = []
    for step in range(steps):
        batch = of.batch(step)
        for ids, labels in zip(batch.ids, batch.labels, strict=True):
            scored = labels >= 0
            assert (ids[scored] == labels[scored]).all()
            answer: Any = TOKENIZER.decode(ids[scored])
            whole: Any = TOKENIZER.decode(ids)
            asked, _, _ = whole.partition(answer)
            assert answer.endswith("</s>")
            pairs.append((asked, answer.removesuffix("</s>")))
    return pairs


def test_an_example_asks_for_the_properties_and_is_scored_on_the_molecule_alone() -> None:
    ((asked, answer), *_) = shown(lessons([BUTANOL]), 1)
    assert answer == "CCCCO"
    assert asked.startswith("<s>") and asked.endswith(CANONICAL)
    items = [part.split("*") for part in asked.removeprefix("<s>").removesuffix(CANONICAL).split()]
    assert {name: float(text) for name, text, _ in items} == {
        "alpha": 44.0, "homo": -5.6, "lumo": 1.0, "gap": 6.8, "mu": 0.5, "cv": 21.0
    }  # fmt: skip


def test_every_molecule_comes_once_in_an_epoch_and_orders_differ() -> None:
    pairs = shown(lessons(SOME), 10)
    first, second = pairs[:40], pairs[40:]
    assert Counter(answer for _, answer in first) == Counter(one.smiles for one in SOME)
    assert Counter(answer for _, answer in second) == Counter(one.smiles for one in SOME)
    assert [answer for _, answer in first] != [answer for _, answer in second]
    orders = {tuple(part.split("*")[0] for part in asked[3:].split()[:6]) for asked, _ in pairs}
    assert len(orders) > 60


def test_a_step_is_the_same_whatever_was_asked_before() -> None:
    one, other = (lessons(SOME, jitter=0.1, spelling=0.5) for _ in range(2))
    one.batch(7)
    assert (one.batch(3).ids == other.batch(3).ids).all()
    assert shown(one, 1) != shown(lessons(SOME, jitter=0.1, spelling=0.5, seed=1), 1)


def test_any_spelling_is_asked_for_by_its_own_separator() -> None:
    pairs = shown(lessons(SOME, spelling=0.5, batch_size=40), 5)
    other = [(asked, answer) for asked, answer in pairs if asked.endswith(ANY_SPELLING)]
    assert 60 < len(other) < 140
    assert {canonical(answer) for _, answer in other} <= {canonical(one.smiles) for one in SOME}
    assert {answer for _, answer in other} - {one.smiles for one in SOME}
    plain = [answer for asked, answer in pairs if asked.endswith(CANONICAL)]
    assert len(plain) + len(other) == len(pairs)
    assert set(plain) <= {one.smiles for one in SOME}


def test_noise_has_the_size_that_was_asked_for() -> None:
    def alphas(jitter: float) -> list[float]:
        asked = [asked for asked, _ in shown(lessons(SOME, jitter=jitter, batch_size=40), 10)]
        return [float(text.partition("alpha*")[2].partition("*")[0]) for text in asked]

    spread = np.std([one.properties[0] for one in SOME])
    exact, noisy = sorted(alphas(0.0)), np.array(sorted(alphas(2.0)))
    assert set(exact) == {round(one.properties[0], 2) for one in SOME}
    assert np.std(noisy) == pytest.approx(spread * np.sqrt(1 + 2.0**2), rel=0.15)


def test_batches_are_padded_behind_what_is_scored() -> None:
    batch = to_batch(TOKENIZER, [("<s>", "C"), ("<s>", "CCCC")])
    assert batch.ids.shape == (2, 6)
    assert batch.labels.tolist()[0] == [-100, *TOKENIZER("C</s>")["input_ids"], -100, -100, -100]
    assert set(batch.ids.tolist()[0][3:]) == {TOKENIZER.pad_token_id}


def test_an_exam_asks_true_values_in_the_same_order_each_time() -> None:
    one, other = (held_out_batch(TOKENIZER, SOME) for _ in range(2))
    assert (one.ids == other.ids).all()
    texts = [TOKENIZER.decode(ids) for ids in one.ids]
    assert all(
        f"alpha*{molecule.properties[0]:.2f}*" in text for molecule, text in zip(SOME, texts, strict=True)
    )
    assert all(
        f"{CANONICAL}{molecule.smiles}</s>" in text for molecule, text in zip(SOME, texts, strict=True)
    )


# what molecules are worth


class Lookup:
    """A predictor that knows the answer: every property of a molecule is the number of its letters."""

    def predict(self, smiles: Sequence[str]) -> Any:
        return np.array([[float(len(text))] * 6 for text in smiles]).reshape(len(smiles), 6)


LOOKUP = cast(Predictor, Lookup())


def requested(size: int) -> Molecule:
    """Asks for a molecule of so many letters."""
    return Molecule(str(size), "C" * size, (str(size),) * 6)


def wrote(method: str, *texts: tuple[int, int, str]) -> list[WrittenMolecule]:
    return [
        WrittenMolecule(
            method, request, turn, (turn, *range(5)), text, None if text.startswith("!") else text
        )
        for request, turn, text in texts
    ]


def test_molecules_are_judged_by_hand() -> None:
    """Requests of 3 and 4 letters in two orders; ! marks what is no molecule."""
    written = [
        *wrote("vanilla", (0, 0, "CCC"), (0, 1, "CCCCC"), (1, 0, "CCC"), (1, 1, "!a")),
        *wrote("pine", (0, 0, "CC"), (0, 1, "CC"), (1, 0, "!b"), (1, 1, "!b")),
        *wrote("nia", (0, 0, "!a"), (0, 1, "!b"), (1, 0, "!b"), (1, 1, "!b")),
    ]
    vanilla, pine, nia = judge(written, [requested(3), requested(4)], LOOKUP, {"CCC", "CCCCCC"})
    assert (vanilla.method, vanilla.written, vanilla.valid) == ("vanilla", 4, 0.75)
    assert vanilla.unique == (1 / 2 + 1) / 2  # CCC twice in the first order, CCCCC alone in the second
    assert vanilla.novel == 1 / 2  # of CCC and CCCCC
    assert vanilla.changed == 1
    assert vanilla.errors and vanilla.errors["mu"].mean == pytest.approx((0 + 2 + 1) / 3)
    assert vanilla.errors["mu"].n == 3
    assert vanilla.more_error is None
    assert (pine.valid, pine.unique, pine.novel, pine.changed) == (0.5, 1, 1, 0)
    assert pine.errors and pine.errors["cv"].mean == 1
    # Both answered request 0 alone with molecules: errors 1 and 1 against 0 and 2.
    assert pine.more_error and pine.more_error["cv"].mean == 0 and pine.more_error["cv"].n == 2
    assert (nia.valid, nia.unique, nia.novel, nia.changed) == (0, None, None, 0.5)
    assert nia.errors is None and nia.more_error is None


def test_an_interval_is_over_requests_and_holds_the_mean() -> None:
    """Ten orders of one request are one request: they tell nothing about others."""
    sizes = [(request, turn, "C" * (1 + request)) for request in range(8) for turn in range(10)]
    requests = [requested(1) for _ in range(8)]
    (spread,) = judge(wrote("pine", *sizes), requests, LOOKUP, set())
    assert spread.errors
    estimate = spread.errors["gap"]
    assert estimate.mean == 3.5
    assert 1.5 < estimate.low < 2.5 and 4.5 < estimate.high < 5.5
    (alone,) = judge(wrote("pine", *sizes[-10:]), requests, LOOKUP, set())
    assert alone.errors and alone.errors["gap"].low == alone.errors["gap"].high == 7


def test_references_are_the_right_molecules_and_those_of_others() -> None:
    found = references([requested(size) for size in (2, 5, 9)], LOOKUP)
    assert {one.mean for one in found.predictor.values()} == {0}
    assert found.strangers["alpha"].mean == pytest.approx((3 + 4 + 7) / 3)  # whichever way round


def test_orders_are_drawn_for_each_molecule_and_all_differ() -> None:
    orders = random_orders(BUTANOL, 720, 0)
    assert len(set(orders)) == 720
    assert random_orders(BUTANOL, 5, 0) == orders[:5] != random_orders(BUTANOL, 5, 1)
    assert random_orders(SOME[0], 5, 0) != orders[:5]


# the predictor


def test_properties_that_follow_from_atoms_are_predicted() -> None:
    mixed = random.Random(0).sample(sorted(set(map(canonical, SMILES))), 80)
    known, asked = ([molecule(smiles) for smiles in part] for part in (mixed[:50], mixed[50:]))
    predicted = Predictor(known).predict([one.smiles for one in asked])
    true = np.array([one.properties for one in asked])
    assert predicted.shape == true.shape
    assert (np.abs(predicted - true).mean(0) < 0.1 * true.std(0)).all()
    assert Predictor(known).predict([]).shape == (0, 6)


def test_properties_that_follow_from_how_atoms_are_joined_are_predicted() -> None:
    """Isomers: each alcohol and ether has the same atoms and bonds, and only the first the property."""
    chains = [("C" * length, "C" * (9 - length)) for length in range(1, 9)]
    alcohols = [canonical(f"{left}C(O){right}") for left, right in chains]
    ethers = [canonical(f"{left}OC{right}") for left, right in chains]
    known = [*(Molecule("", one, ("1",) * 6) for one in alcohols[::2] * 3)]
    known += [Molecule("", one, ("0",) * 6) for one in ethers[::2] * 3]
    fitted = Predictor(known)
    assert fitted.predict(alcohols[1::2]).min() > 0.7
    assert fitted.predict(ethers[1::2]).max() < 0.3


def test_of_many_molecules_a_drawn_part_teaches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictor, "MOST_MOLECULES", 25)
    described: list[Sequence[str]] = []

    def describe_and_note(smiles: Sequence[str]) -> Descriptors:
        described.append(smiles)
        return describe(smiles)

    monkeypatch.setattr(predictor, "describe", describe_and_note)
    Predictor(SOME)
    Predictor(SOME)
    first, again = described
    assert first == again != [one.smiles for one in SOME[:25]]
    assert len(set(first)) == 25 and set(first) < {one.smiles for one in SOME}


def test_too_few_molecules_teach_nothing() -> None:
    with pytest.raises(InputError, match=r"^there are 19 molecules to learn .* from; give 20 or more$"):
        Predictor(SOME[:19])
