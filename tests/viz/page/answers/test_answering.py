"""Finished answers on the page: what the task reads in them, how they score, what the form is called."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import app
from pine_engine.engine.engine import Engine
from pine_engine.models.load import SHIPPED
from pine_engine.optional_packages import how_to_install
from pine_engine.prompts.tasks import TASKS
from tests.support.running import one_run, run_views, sources_of
from tests.support.runs import form_of
from tests.support.viz_reading import read_html
from tests.support.widgets import workspace
from viz.cards.answers import AnswerCard
from viz.page.answers import filling, form_run
from viz.page.answers.answering import accepted_answers, shown_html, stopped_cards
from viz.page.answers.recordings import recorded_of
from viz.page.answers.shown import Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.failures import notice
from viz.page.common.host_settings import DEFAULTS
from viz.page.form import form as form_module
from viz.page.form.documents import Entry, entries_from, entries_json
from viz.page.form.examples import NO_EXAMPLE, load_examples
from viz.page.form.form import Form, read_form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.jobs.loader import EngineSource
from viz.page.shuffle_job import prepare_shuffle


def shown(text: str, task: str) -> Shown:
    card = AnswerCard("pine")
    return Shown(form_of(task=task), (replace(card, state="finished", text=text),))


def readings(html: str) -> list[str]:
    return [" ".join(found.text.split()) for found in read_html(html).with_class("pine-reading")]


@pytest.mark.parametrize(
    ("task", "text", "accepted", "reading"),
    [
        ("judge", "A is right. [[A]]", "B", "Parsed verdict: A ✗ incorrect"),
        ("judge", "Both are good.", "B", "No verdict found in the answer ◐ 0.33 points"),
        ("math_reasoning", "35 - 10.\nAnswer: 25.", "25", "Parsed number: 25 ✓ correct"),
        ("retrieval_qa", "It is in Brenholt.", "Oldingen\n\nBrenholt", "✓ correct"),
        ("kv_retrieval", ' "4711",\nand more', "4711", "Parsed value: 4711 ✓ correct"),
    ],
)
def test_answer_is_parsed_and_scored_by_its_task(task: str, text: str, accepted: str, reading: str) -> None:
    finished = shown(text, task)
    assert readings(shown_html(finished, accepted_answers(accepted))) == [reading]
    cards = stopped_cards([replace(finished.cards[0], state="writing")])
    assert readings(shown_html(replace(finished, cards=cards), accepted_answers(accepted))) == []


def test_answer_cut_off_is_marked_as_in_the_table() -> None:
    for text, mark in (("It is in Brenholt, wh", "(✓) contains the answer, cut off"), ("No", "✗ incorrect")):
        view = shown(text, "retrieval_qa")
        card = replace(view.cards[0], finish_reason="length")
        assert readings(shown_html(replace(view, cards=(card,)), ["Brenholt"])) == [mark]


def test_empty_lines_are_no_accepted_answers() -> None:
    assert accepted_answers("  one two \r\n\n \nthree") == ("one two", "three")
    assert accepted_answers(" \n") == accepted_answers("") == accepted_answers(None) == ()


# What the parts of the form are called


@pytest.fixture(scope="module")
def page() -> Workspace:
    return workspace()


def test_judge_task_names_answers_of_assistants(page: Workspace) -> None:
    updates = filling.renamed(page, "judge", {})
    words = updates[page.editor.cards]["words"]
    assert updates[page.heading]["value"] == "<h3>Answers to compare</h3>"
    assert updates[page.question]["label"] == "User’s question"
    assert (words["document"], words["add"], words["title"]) == ("answer", "Add an answer", "")
    assert words["names"][:2] == ["Answer of assistant A", "Answer of assistant B"] and words["owned"]
    assert not any("value" in updates[widget] for widget in (page.editor.cards, page.question)), "typed"


def test_another_example_shows_no_status_of_an_earlier_run(page: Workspace) -> None:
    updates = filling.filled(page, load_examples()[1].form(()), accepted="", note="")
    assert updates[page.bar.status] == updates[page.shuffle_bar.status] == notice("")


def test_answers_to_other_inputs_stay_marked_until_the_first_new_one(page: Workspace) -> None:
    form = load_examples()[0].form(DEFAULT_METHODS)
    started = form_run.Started(form, None, None, "", "")
    assert page.stale not in form_run.clear_before(page, started, page.shuffle_bar)
    answered = recorded_of(form)
    assert (
        form_run.show_view(page, started, replace(answered, cards=tuple(map(AnswerCard, form.methods)))) == {}
    )
    updates = form_run.show_view(page, started, answered)
    assert page.origin in updates and page.stale not in updates, "another example can be on the page"


def test_form_of_a_run_is_parsed_and_checked_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, page: Workspace
) -> None:
    calls: Counter[str] = Counter()
    for owner, name in ((form_module, "parse_kwargs"), (Form, "check")):
        function = getattr(owner, name)

        def counted(*arguments: Any, name: str = name, function: Any = function) -> Any:
            calls[name] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, counted)
    values: list[Any] = [
        "retrieval_qa",
        "Who?",
        "",
        ["pine"],
        8,
        entries_json(entries_from([("", "red")])),
        "",
    ]
    job = form_run.begin_run(page, DEFAULTS, shown("", "retrieval_qa"), None, "", "", *values).job
    job.prepare(engine, **job.arguments)
    prepare_shuffle(engine, read_form(*values), count=2, seed=0, controls=True)
    assert calls == {"parse_kwargs": 2, "check": 2}, "once for each run"


def test_hidden_title_is_not_used() -> None:
    entry = Entry(0, " Varo ", "red")
    request = Form("retrieval_qa", "q", "", ("pine",), 8, (entry,))
    assert request.title(entry) == "Varo"
    assert replace(request, task="math_reasoning").title(entry) == ""


# Examples


def test_the_accepted_answers_of_examples_can_be_scored() -> None:
    for example in filter(lambda example: example.answers, load_examples()):
        task = TASKS[example.task]
        written = {"judge": "[[{}]]", "math_reasoning": "Answer: {}"}.get(example.task, "{}")
        assert {task.score(written.format(answer), example.answers) for answer in example.answers} == {1.0}
        assert task.score("none of them", example.answers) < 1


def test_challenge_changes_the_first_example_and_has_a_remark(page: Workspace) -> None:
    first, *others = load_examples()
    challenges = [example for example in others if example.challenge]
    assert [example.name for example in challenges] == list(page.challenges)
    for example in challenges:
        assert {*example.documents} & {*first.documents} and example.note
        updates = filling.take_challenge(page, example.name, (), {}, *kept(page, first.form(DEFAULT_METHODS)))
        assert updates[page.example] == updates[page.picked] == example.name
        assert updates[page.question] == example.question


def kept(page: Workspace, form: Form, **others: Any) -> list[Any]:
    """Return the values that a challenge replaces, in the order of `page.kept`."""
    answers = Shown(form, (AnswerCard("pine", text="x"),))
    fields = [form.task, form.question, form.instruction, form.methods, form.max_new_tokens]
    fields += [entries_json(form.entries), "", "", "", NO_EXAMPLE, "", answers, None]
    values = dict(zip(page.kept, fields, strict=True))
    return list((values | {getattr(page, name): value for name, value in others.items()}).values())


def test_way_back_restores_everything_before_a_challenge(page: Workspace) -> None:
    own, (example, other) = form_of(instruction="Be brief.", methods=("pine",)), list(page.challenges)[:2]
    before = kept(page, own, accepted="yes", typed="yes", note="mine", finished="a run")
    taken = filling.take_challenge(page, example, (), {}, *before)
    challenge = values_after(page, taken, before)
    again = filling.take_challenge(page, other, taken[page.before], {}, *challenge)
    back = filling.go_back(page, other, again[page.before], {}, *values_after(page, again, challenge))
    assert values_after(page, again | back, before) == before
    assert back[page.picked] == NO_EXAMPLE and back[page.origin] == (own, None) and back[page.before] == ()
    first = filling.go_back(page, example, (), {}, *challenge)
    assert page.edited not in back and page.edited not in first
    assert first[page.example] == first[page.picked] == load_examples()[0].name


def test_edited_challenge_is_restored_before_what_it_replaced(page: Workspace) -> None:
    example, other = list(page.challenges)[:2]
    before = kept(page, form_of())
    taken = filling.take_challenge(page, example, (), {}, *before)
    edited = values_after(page, taken | {page.question: "And the tower?"}, before)
    again = filling.take_challenge(page, other, taken[page.before], {}, *edited)
    back = filling.go_back(page, other, again[page.before], {}, *values_after(page, again, edited))
    assert back[page.question] == "And the tower?" and back[page.before] == (tuple(before),)


def test_edited_challenge_is_restored_when_chosen_again(page: Workspace) -> None:
    example, other = list(page.challenges)[:2]
    before = kept(page, form_of())
    taken = filling.take_challenge(page, example, (), {}, *before)
    edited = values_after(page, taken | {page.question: "And the tower?"}, before)
    back = filling.go_back(page, example, taken[page.before], {}, *edited)
    assert values_after(page, back, edited) == before
    assert filling.KEPT in back[page.bar.status] and back[page.edited] == {example: tuple(edited)}
    others = filling.take_challenge(page, other, (), back[page.edited], *before)
    assert others[page.question] != "And the tower?" and page.edited not in others
    again = filling.take_challenge(page, example, (), back[page.edited], *before)
    assert values_after(page, again, before) == edited
    assert again[page.edited] == {} and again[page.before] == (tuple(before),)


def values_after(page: Workspace, updates: dict[Any, Any], before: list[Any]) -> list[Any]:
    """Return the values of `page.kept` after updates."""
    return [updates.get(widget, value) for widget, value in zip(page.kept, before, strict=True)]


# Molecules


def test_a_molecule_is_drawn_with_its_smiles_as_text() -> None:
    pytest.importorskip("rdkit")
    html = shown_html(shown("CC(=O)C", "qm9"))
    (drawing,) = read_html(html).with_class("pine-sketch")
    assert [child.tag for child in drawing.children] == ["svg"]
    assert read_html(html).with_class("pine-answer-text")[0].text == "CC(=O)C"
    assert "Model: molecules" in html
    assert "Model:" not in shown_html(shown("CC(=O)C", "molecule_generation"))


def test_invalid_molecule_shows_text_without_drawing() -> None:
    pytest.importorskip("rdkit")
    html = shown_html(shown("C1CC", "qm9"))
    assert not read_html(html).with_class("pine-sketch")
    assert readings(html)[0].endswith("Invalid molecule")
    assert readings(shown_html(shown(" ", "qm9"))) == ["No molecule found in the answer"]


def test_card_without_rdkit_names_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    (reading,) = readings(shown_html(shown("CO", "qm9")))
    assert reading.endswith(f"RDKit is not installed; {how_to_install('rdkit')}")


# Models of tasks


def test_missing_task_model_fails_with_its_name() -> None:
    sources = sources_of(EngineSource(lambda: pytest.fail("not needed"), "main"))
    (view,) = run_views(
        lambda: sources.lease("qm9"), lambda _: pytest.fail("there is no engine to work with"), **one_run()
    )
    assert view == "failed: Model molecules, required for this task, is not available."


def test_app_has_the_models_of_all_tasks() -> None:
    own = app.own_sources("cpu")
    assert set(own) == {row.model for row in TASKS.values() if row.model} == {"molecules"}
    assert (SHIPPED / "molecules" / "model.safetensors").is_file()
