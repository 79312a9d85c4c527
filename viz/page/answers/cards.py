"""Answer cards before, during and after a run, with parsed answers and scores."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS, Task
from viz.cards.answers import AnswerCard, Reading, answer_grid
from viz.cards.molecule import molecule_svg
from viz.page.answers.run import Shown
from viz.page.common.failures import notice


def waiting_cards(methods: Sequence[str]) -> tuple[AnswerCard, ...]:
    """Return the cards of methods that have not started."""
    rows = [METHODS[name] for name in methods]
    return tuple(AnswerCard(row.name, row.label, row.description, row.is_order_invariant) for row in rows)


def stopped_cards(cards: Sequence[AnswerCard]) -> tuple[AnswerCard, ...]:
    """Return the cards after Stop: unfinished ones are marked as stopped and keep their text."""
    return tuple(card if card.state == "finished" else replace(card, state="stopped") for card in cards)


def accepted_answers(typed: str | None) -> tuple[str, ...]:
    """Return the accepted answers, one per non-empty line."""
    return tuple(filter(None, (line.strip() for line in (typed or "").splitlines())))


def is_correct_by(task: str, accepted: Sequence[str]) -> Callable[[str], bool] | None:
    """Return the check of an answer by the rule of the task; None if no answers are accepted."""
    return (lambda text: TASKS[task].score(text, accepted) == 1) if accepted else None


def shown_html(shown: Shown, accepted: Sequence[str] = ()) -> str:
    """Render the cards with parsed and scored answers, and the source of recorded ones."""
    task = shown.form.row
    cards = [replace(card, model=task.model) for card in shown.cards]
    for place, card in enumerate(cards):
        if card.state == "finished":
            cards[place] = replace(card, reading=read_answer(task, card.text, accepted))
    return answer_grid(cards) + (notice(f"{shown.recorded}.") if shown.recorded else "")


def read_answer(task: Task, text: str, accepted: Sequence[str]) -> Reading:
    """Parse a whole answer, and score it if any answers are accepted."""
    parsed = task.parse(text)
    score = task.score(text, accepted) if accepted else None
    draw = DRAWINGS.get(task.drawn_as)
    html, remark = draw(parsed) if draw and parsed is not None else ("", "")
    return Reading(parsed, task.nouns.finding, score, html, remark)


def draw_molecule(smiles: str) -> tuple[str, str]:
    """Return escaped HTML of the molecule of a SMILES string, or "" and a remark why there is none."""
    try:
        svg = molecule_svg(smiles)
    except ImportError as error:
        return "", f"Cannot draw molecule: {error}"
    return (svg, "") if svg else ("", "Invalid molecule")


DRAWINGS = {"molecule": draw_molecule}  # drawing of a parsed answer, by Task.drawn_as
