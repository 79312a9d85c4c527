"""The lesson's text, and its pictures drawn from a run: the recorded one, or the class's own."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest

from markupsafe import Markup

from pine_engine.methods.table import METHODS
from viz.cards.glossary import term
from viz.cards.importance_table import importance_table
from viz.cards.mask_cards import mask_cards
from viz.cards.position_table import position_table, table_rows
from viz.cards.rulers import position_ruler, view_text
from viz.cards.shuffle import letter_strip
from viz.cards.tutorial import (
    OrderedAnswer,
    QuizEntry,
    Step,
    StepPart,
    documents_html,
    orders_picture,
    pointing,
    quiz,
    tutorial,
    tutorial_page,
)
from viz.drawing.identity import Segment, document_letter
from viz.drawing.markup import figure_styles
from viz.drawing.picture import Numbers, beside, picture
from viz.figures.answer_tokens import AnswerTokens
from viz.figures.frame import FloatArray
from viz.figures.importance import place_name, select_importance
from viz.page.answers.answer_records import TriedOrder
from viz.page.answers.answering import FinishedRun, in_orders
from viz.page.answers.cards import right_by
from viz.page.answers.recordings import Recording, lesson_recording
from viz.page.common.theme import SCRIPTS
from viz.page.form.examples import FormExample, load_examples
from viz.page.inside.drawn_masks import segment_mask
from viz.page.inside.drawn_positions import shown_place, view_of
from viz.page.inside.reading import first_selection, plan_of, query_of_step, ranked_trace, run_documents
from viz.page.lesson.running_example import example_positions, example_tokens
from viz.page.lesson.spots import (
    Spots,
    example_cells,
    importance_cell,
    importance_column,
    importance_row,
    in_picture,
    mask_cells,
    mask_row,
    most_important,
    on_the_axis,
    whole_mask,
)

TITLE = "Why the order of the documents matters, and how PINE removes it"
EIGHT_TOKENS = "The paper’s running example of eight tokens, with the rankings the paper states; no model."


@cache
def live_lesson_html() -> str:
    """HTML of the lesson for the page, drawn from the recording."""
    return tutorial(lesson_steps(lesson_recording()), is_live=True)


def lesson_document(own: FinishedRun | None) -> str:
    """A whole HTML document with the lesson, drawn from the class's own run as far as it can tell.

    own: the last run; None, and whatever it lacks, is shown from the recording.
    """
    recording = lesson_recording()
    about = recording.run.recorded if own is None else f"With a run of your own: {source_of(own)}"
    return tutorial_page(
        lesson_steps(recording, own),
        title=TITLE,
        about=f"{about}. This page works offline.",
        styles=figure_styles(),
        scripts=[path.read_text(encoding="utf-8") for path in SCRIPTS],
    )


def lesson_steps(recording: Recording, own: FinishedRun | None = None) -> tuple[Step, ...]:
    """The eight steps. own: is shown in place of the recorded run wherever it has what a picture needs."""
    run = own or recording.run
    with_vanilla = run if "vanilla" in run.answer_records else recording.run
    with_pine = run if "pine" in run.answer_records and len(run.order) > 1 else recording.run
    return (
        _bias(run, run.form.question if run.form else "", None)
        if answers_in_two_orders(run) and own
        else _bias(recording.run, recording.question, example_of(recording)),
        _mask(run),
        _rope(with_vanilla),
        _both_ways(run),
        _importance(with_pine),
        _places(with_pine),
        _proof(recording),
        _quiz(run if exchange_of_two(run) else recording.run, recording),
    )


def source_of(run: FinishedRun) -> str:
    """Whose numbers a picture shows: when it was recorded, or with what it was computed."""
    return run.recorded or f"{run.model}, {run.dtype}"


# The steps ---------------------------------------------------------------------------------------------


_TAKEAWAY = (
    '<p class="pine-lesson-text">This is position bias: where a text stands counts, and not only what it '
    "says.</p>"
)
"""Of the first step, told with the results: it would give them away."""


def _bias(run: FinishedRun, question: str, example: FormExample | None) -> Step:
    answers = through_slots(run, example) if example else answers_in_two_orders(run)
    first, *others = answers
    other = next((one for one in others if one.answer != first.answer), others[0])
    label = METHODS["vanilla"].label
    return Step(
        "bias",
        "Guess first: does the order change the answer?",
        (
            StepPart(
                f"A language model reads these documents, in the order {first.order}, and a question.",
                documents_html(document_texts(run, first.segments), question),
                source_of(run),
            ),
            StepPart(
                "Then it reads them in other orders. Nothing else is different. Guess, then look.",
                quiz(
                    "Does the model give the same answer in every order?",
                    [QuizEntry("vanilla", label, first.answer, other.answer, other.answer == first.answer)],
                    afterwards=orders_picture(answers, method=label) + _TAKEAWAY,
                ),
                source_of(run),
            ),
        ),
        "section 1",
        ("change", "What changed"),
    )


def _mask(run: FinishedRun) -> Step:
    return Step(
        "mask",
        "Where it comes from: who may read whom",
        (
            StepPart(
                Markup(
                    "A model reads from left to right: a {token} may look back but never ahead. This rule "
                    "is the {mask}. So {last} has read all the others, and {first} has read "
                    "none of them. {nia}: no document may read another, but each still stands at its "
                    "place in the line. If the answer still depends on the order, the mask is not the only "
                    "cause."
                ).format(
                    token=term("token"),
                    mask=term("mask"),
                    last=pointing("the last document", mask_row(1, len(run.order))),
                    first=pointing("the first", mask_row(1, 1)),
                    nia=pointing("NIA is a test", whole_mask(2)),
                ),
                _masks(run, "vanilla", "nia"),
                source_of(run),
            ),
        ),
        "section 3.2",
        ("masks", "Masks"),
    )


def _rope(run: FinishedRun) -> Step:
    return Step(
        "rope",
        "Where it comes from: how far away",
        (
            StepPart(
                Markup(
                    "The model also counts. Every token gets a number, its {position}, and RoPE turns "
                    "numbers into distances. What stands {near} is read differently from what "
                    "stands {far}, and often weighs more. So even where the mask treats all documents "
                    "alike, another order is another distance."
                ).format(
                    position=term("position"),
                    near=pointing("near the reader", on_the_axis(run.order[-1])),
                    far=pointing("far away", on_the_axis(run.order[0])),
                ),
                _ruler(run, run, "vanilla"),
                source_of(run),
            ),
        ),
        "section 3.2",
        ("positions", "Positions"),
    )


def _both_ways(run: FinishedRun) -> Step:
    return Step(
        "both-ways",
        "The cure, first part: read in both directions",
        (
            StepPart(
                Markup(
                    "PINE lets every document read all the others, {later}. {inside} "
                    "the model still reads from left to right, or its words would lose their order. Now no "
                    "document is better off because of the mask. But at which positions do the others stand?"
                ).format(
                    later=pointing("also those that come later", mask_cells(2, "pine-differs")),
                    inside=pointing("Inside a document", mask_cells(2, "pine-causal")),
                ),
                _masks(run, "vanilla", "pine"),
                source_of(run),
            ),
        ),
        "section 3.3",
        ("masks", "Masks"),
    )


def _importance(run: FinishedRun) -> Step:
    return Step(
        "importance",
        "The cure, second part: what matters to whom?",
        (
            StepPart(
                Markup(
                    "PINE asks the model itself. With all positions switched off, how much {attention} does "
                    "{one}? That, per token of the other, is its {importance}. Every "
                    "{layer} and every {head} has its own opinion; here is one of them. {most} may well be a "
                    "document that does not hold the answer: the answer comes from all of them together."
                ).format(
                    one=pointing("one document pay to another", importance_cell(0, 1)),
                    most=pointing("What it prefers", *most_important(head_importance(run, run))),
                    attention=term("attention"),
                    importance=term("importance"),
                    layer=term("layer"),
                    head=term("head"),
                ),
                _importances(run, run),
                source_of(run),
            ),
        ),
        "section 3.3",
        ("importance", "Importance"),
    )


def _places(run: FinishedRun) -> Step:
    tokens = example_tokens()
    positions, query_positions = example_positions(METHODS["pine"])
    names = [token.name for token in tokens]
    label = "The position each key takes for each query under PINE"
    table = picture(
        position_table(positions, query_positions, tokens, tokens, label=label),
        name="lesson-places",
        caption=f"{label}, rows being queries; 1 is the first position.",
        numbers=Numbers(
            ("query", "query\u2019s position", *names), table_rows(positions, query_positions, names)
        ),
    )
    return Step(
        "places",
        "The cure, third part: new places",
        (
            StepPart(
                Markup(
                    "Now every reader sees the documents in an order of its own: what matters most to it "
                    "stands nearest. {own} always comes last, which is nearest of all. Compare the rows: the "
                    "same document has another position for another reader, B {here} and B {there}."
                ).format(
                    own=pointing("Its own document", *(example_cells(d, d) for d in range(3))),
                    here=pointing("for A", example_cells(0, 1)),
                    there=pointing("for C", example_cells(2, 1)),
                ),
                table,
                EIGHT_TOKENS,
            ),
            StepPart(
                "And this is what the end of the question sees in a real run.",
                _ruler(run, run, "pine"),
                source_of(run),
            ),
        ),
        "section 3.3",
        ("positions", "Positions"),
    )


def _proof(recording: Recording) -> Step:
    run, runs = recording.run, (recording.run, recording.exchanged)

    def both(text: str, draw: Callable[[FinishedRun], str], spots: Callable[[int, int], Spots]) -> StepPart:
        """Some sentences, both pictures, and where each document is in them.

        spots: where a document is that stands in a slot.
        """
        followed = [
            pointing(
                f"document {document_letter(document)}",
                *(
                    in_picture(which, spot)
                    for which, one in enumerate(runs, start=1)
                    for spot in spots(document, one.order.index(document))
                ),
            )
            for document in run.order
        ]
        drawn = beside(*(_entered(one) + draw(one) for one in runs))
        return StepPart(
            Markup("{} Follow {}.").format(text, Markup(", ").join(followed)), drawn, source_of(run)
        )

    return Step(
        "proof",
        "Why the order can no longer matter: three sentences",
        (
            both(
                "One: every document is read together with the same set of others, whichever came first.",
                lambda one: _masks(one, "pine"),
                lambda _, slot: [mask_row(1, slot + 1)],
            ),
            both(
                "Two: importance is measured without positions, so it cannot know who came first; the rows "
                "and columns change places, and their numbers go with them.",
                lambda one: _importances(one, run),
                lambda _, slot: [importance_row(slot), importance_column(slot)],
            ),
            both(
                "Three: the new places depend on importance alone, so the order of entry comes in nowhere, "
                "and what leaves one layer for the next is the same in both orders, up to the answer.",
                lambda one: _ruler(one, run, "pine"),
                lambda document, _: [on_the_axis(document)],
            ),
        ),
        "section 3.3, Lemma 1 and Theorem 1",
        ("positions", "Positions"),
    )


def _quiz(run: FinishedRun, recording: Recording) -> Step:
    other = exchange_of_two(run)
    assert other is not None
    letters = " and ".join(exchanged_letters(run, other))
    # All orders would give the answers away, so they come with them.
    example, tried = example_of(recording), in_orders(recording.run)
    assert tried is not None
    orders = letter_strip(
        tried,
        labels={method: METHODS[method].label for method in tried.answers},
        is_right=right_by(example.task, example.answers) if example else None,
    )
    return Step(
        "quiz",
        "Guess first: who keeps the answer? And what does it cost?",
        (
            StepPart(
                "You have seen what each part does. PCW and SP close the mask as NIA does, and let all "
                "documents share the same positions. Guess for each method, then look.",
                quiz(
                    f"Which of these methods keeps its answer when documents {letters} change places?",
                    quiz_entries(run, other),
                    afterwards=orders if run is recording.run else "",
                ),
                source_of(run),
            ),
            StepPart(
                "What it costs: every document reads every other one, first to rank and then to read, and "
                "twice as many documents are four times as many pairs. Compared with the plain model we "
                "measured about 1.2x the time for 2 documents, and about 2.2x the time to read the prompt "
                "for 20."
            ),
            StepPart(
                "When not to use it: you must know which parts may change places. The steps of a recipe or "
                "the messages of a chat may not; there the order means something."
            ),
            StepPart(
                "What it cannot do: the model knows no more than before. A wrong answer becomes the same "
                "wrong answer in every order: the luck is gone, the mistakes are not."
            ),
        ),
        "sections 4.5 and 5",
    )


# What a run tells --------------------------------------------------------------------------------------


def document_texts(run: FinishedRun, segments: Sequence[Segment]) -> list[tuple[Segment, str]]:
    """Documents of the run, in the order given, with their texts as the model read them."""
    layout = run.result.layout
    texts = {
        segment.document: "".join(run.prompt_tokens[layout.document_slice(slot)]).strip()
        for slot, segment in enumerate(run_documents(run))
    }
    return [(segment, texts[segment.document]) for segment in segments]


def answers_in_two_orders(run: FinishedRun) -> tuple[OrderedAnswer, ...]:
    """Vanilla's answer in the run's order, and in the order whose answer leaves it first.

    Empty if vanilla was not run, or in no other order.
    """
    told = run.answer_records.get("vanilla")
    others = [tried.answer_records["vanilla"] for tried in _others(run) if "vanilla" in tried.answer_records]
    if told is None or not others:
        return ()
    other = min(others, key=lambda other: _parting(told, other))
    return tuple(OrderedAnswer(one.documents, one.text) for one in (told, other))


def example_of(recording: Recording) -> FormExample | None:
    """The example that was recorded; None if there is none of its name."""
    return next((one for one in load_examples() if one.name == recording.example), None)


def through_slots(run: FinishedRun, example: FormExample) -> tuple[OrderedAnswer, ...]:
    """Vanilla's answers with the document that holds the answer in every slot, the others as entered."""
    is_right = right_by(example.task, example.answers)
    answers = {run.order: run.answer_records["vanilla"]}
    answers |= {one.order: one.answer_records["vanilla"] for one in run.tried}
    rest = [one for one in run.order if one != example.gold]
    orders = [(*rest[:slot], example.gold, *rest[slot:]) for slot in range(len(run.order))]
    return tuple(
        OrderedAnswer(
            answers[order].documents, answers[order].text, is_right and is_right(answers[order].text)
        )
        for order in orders
    )


def _parting(left: AnswerTokens, right: AnswerTokens) -> float:
    """Index of the first token in which two answers differ; infinite if they are the same."""
    pairs = enumerate(zip_longest(left.token_ids, right.token_ids))
    return next((index for index, (one, other) in pairs if one != other), math.inf)


def exchange_of_two(run: FinishedRun) -> TriedOrder | None:
    """An order tried in which just two documents have changed places; None if there is none.

    The first and the third if that was tried: nothing else moves so far and leaves one between.
    """
    exchanges = [tried for tried in _others(run) if len(_moved(run, tried)) == 2]
    return next(
        (tried for tried in exchanges if _moved(run, tried) == [0, 2]), exchanges[0] if exchanges else None
    )


def exchanged_letters(run: FinishedRun, tried: TriedOrder) -> tuple[str, str]:
    """The letters of the two documents that have changed places."""
    left, right = _moved(run, tried)
    return document_letter(run.order[left]), document_letter(run.order[right])


def quiz_entries(run: FinishedRun, tried: TriedOrder) -> list[QuizEntry]:
    """What each method did when two documents changed places."""
    return [
        QuizEntry(
            method,
            METHODS[method].label,
            told.text,
            tried.answer_records[method].text,
            told.token_ids == tried.answer_records[method].token_ids,
        )
        for method, told in run.answer_records.items()
        if method in tried.answer_records
    ]


def _others(run: FinishedRun) -> list[TriedOrder]:
    return [tried for tried in run.tried if tried.order != run.order]


def _moved(run: FinishedRun, tried: TriedOrder) -> list[int]:
    """Slots whose document is another."""
    return [
        slot for slot, (one, other) in enumerate(zip(run.order, tried.order, strict=True)) if one != other
    ]


# Pictures ----------------------------------------------------------------------------------------------


def _masks(run: FinishedRun, *methods: str) -> str:
    masks = [segment_mask(run, method) for method in methods]
    return mask_cards(masks, reference=masks[0] if len(masks) > 1 else None, name="lesson-masks")


def _entered(run: FinishedRun) -> str:
    """HTML: in which order the documents of a picture were entered."""
    order = " ".join(map(document_letter, run.order))
    return f'<h4 class="pine-lesson-entered">Entered as {order}</h4>'


def _ruler(run: FinishedRun, chosen_in: FinishedRun, method: str) -> str:
    """What the last token of the question sees. chosen_in: the run whose most decisive head is taken."""
    place = shown_place(chosen_in, first_selection(chosen_in))
    view = view_of(run, plan_of(run, method), query_of_step(run, 0), place)
    assert view is not None
    where = f", {place_name(place.layer, place.head)}" if view.importance is not None else ""
    order = " ".join(map(document_letter, run.order))
    caption = f"{METHODS[method].label}{where}, documents entered as {order}. {view_text(view)}"
    return position_ruler(view, name="lesson-ruler", caption=caption)


def head_importance(run: FinishedRun, chosen_in: FinishedRun) -> FloatArray:
    """How important the documents are to each other under PINE, float32 (D, D), diagonal NaN.

    chosen_in: the run whose most decisive head is taken.
    """
    trace, place = ranked_trace(run, "pine"), shown_place(chosen_in, first_selection(chosen_in))
    assert trace is not None and trace.document_importance is not None
    return select_importance(trace.document_importance, place.layer, place.head)


def _importances(run: FinishedRun, chosen_in: FinishedRun) -> str:
    place = shown_place(chosen_in, first_selection(chosen_in))
    return importance_table(
        head_importance(run, chosen_in),
        run_documents(run),
        method=METHODS["pine"].label,
        layer=place.layer,
        head=place.head,
        dtype=run.dtype,
    )
