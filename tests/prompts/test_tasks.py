"""The wording of every task, as docs/specification.md section 9 has it."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document, Prompt, segment_text
from pine_engine.prompts.tasks import TASKS, document_letter, get_task
from tests.support.tokenizers import byte_tokenizer

CHATML = byte_tokenizer()
NO_TEMPLATE = byte_tokenizer(chat_template=None)

SPECIFICATION = (Path(__file__).parents[2] / "docs" / "specification.md").read_text(encoding="utf-8")


def published(pattern: str) -> str:
    """The one text of the specification that the pattern's group matches."""
    (text,) = re.findall(pattern, SPECIFICATION, re.MULTILINE)
    assert isinstance(text, str)
    return text


JUDGE = published(r"^> (Please act as an impartial judge .*)$")
SEARCH = published(r"^SYS text: `([^`]*)`")
MATH = published(r"^`(Solve this math problem.*)\\n\\n\{problem\}`$")
OPENING = "<|im_start|>user\n"
CLOSING = "<|im_end|>\n<|im_start|>assistant\n"


def texts(prompt: Prompt) -> tuple[str, list[str], str]:
    return segment_text(prompt.prefix), list(map(segment_text, prompt.documents)), segment_text(prompt.suffix)


def prompt_of(task: str, documents: list[Document], question: str = "Why?", **options: str) -> Prompt:
    return get_task(task).prompt(CHATML, question=question, documents=documents, **options)


def test_questions_over_documents() -> None:
    documents = [Document("Tides follow the moon.", "Tides"), Document("No title here.")]
    assert texts(prompt_of("retrieval_qa", documents)) == (
        f"{OPENING}{SEARCH}\n\n",
        ["Document (Title: Tides) Tides follow the moon.\n", "Document: No title here.\n"],
        f"\nQuestion: Why?{CLOSING}",
    )


def test_questions_over_numbered_documents() -> None:
    """The original of lost-in-the-middle, which asks for no one sentence and ends with its own cue."""
    documents = [Document("Tides follow the moon.", "Tides"), Document("No title here.")]
    instruction = SEARCH.replace("one-sentence ", "")
    assert texts(prompt_of("retrieval_qa_numbered", documents)) == (
        f"{OPENING}{instruction}\n\n",
        ["Document [1](Title: Tides) Tides follow the moon.\n", "Document [2] No title here.\n"],
        f"\nQuestion: Why?\nAnswer:{CLOSING}",
    )


def test_judging_two_answers() -> None:
    assert texts(prompt_of("judge_pair", [Document("Yes."), Document("No.", "ignored")])) == (
        f"<|im_start|>system\n{JUDGE}<|im_end|>\n{OPENING}[User Question]\n Why? \n",
        [
            "\n[The Start of Assistant A's Answer]\nYes.\n[The End of Assistant A's Answer]\n",
            "\n[The Start of Assistant B's Answer]\nNo.\n[The End of Assistant B's Answer]\n",
        ],
        CLOSING,
    )


def test_conditions_of_a_math_problem() -> None:
    documents = [Document("Ann has 3 apples."), Document("Bob has 4.", "Second:")]
    assert texts(prompt_of("math_reasoning", documents, "How many are there?")) == (
        f"{OPENING}{MATH}\n\n",
        ["Ann has 3 apples. ", "Second: Bob has 4. "],
        f"How many are there?{CLOSING}",
    )


def test_molecules_from_properties_need_no_question() -> None:
    documents = [Document("81.68", "alpha"), Document("mu*2.03*")]
    assert texts(prompt_of("molecule_generation", documents, "")) == (
        f"{OPENING}Write the SMILES string of a small organic molecule with these properties.\n\n",
        ["alpha: 81.68\n", "mu*2.03*\n"],
        CLOSING,
    )


def test_value_of_a_key() -> None:
    documents = [Document("9d8e", "2a8d"), Document("77")]
    assert texts(prompt_of("kv_retrieval", documents, "2a8d")) == (
        f"{OPENING}Extract the value corresponding to the specified key in the JSON object below.\n\n"
        "JSON data:\n",
        ['"2a8d": "9d8e",\n', '"77",\n'],
        f'\nKey: "2a8d"\nCorresponding value:{CLOSING}',
    )


def test_an_instruction_of_ones_own_stands_in_the_place_of_the_tasks() -> None:
    document = [Document("d")]
    prefix, _, _ = texts(prompt_of("retrieval_qa", document, instruction="In one word.", system="Be kind."))
    assert prefix == f"<|im_start|>system\nBe kind.<|im_end|>\n{OPENING}In one word.\n\n"
    prefix, _, _ = texts(prompt_of("judge_pair", document, instruction="Pick one.", system="Be kind."))
    assert prefix == (
        f"<|im_start|>system\nBe kind.\n\nPick one.<|im_end|>\n{OPENING}[User Question]\n Why? \n"
    )


def test_a_letter_stays_with_its_document() -> None:
    """Reordering happens to segments, after the letters were given; so the text says who it was."""
    prompt = prompt_of("judge_pair", [Document("Yes."), Document("No.")])
    _, documents, _ = texts(prompt)
    assert "Assistant A" in documents[0] and "Yes." in documents[0]
    assert "Assistant B" in documents[1] and "No." in documents[1]


def test_letters_and_numbers_are_seen_in_the_templates() -> None:
    assert [name for name, task in TASKS.items() if task.has_letters] == ["judge_pair"]
    assert [name for name, task in TASKS.items() if task.has_numbers] == ["retrieval_qa_numbered"]


@pytest.mark.parametrize(
    ("task", "ending"),
    [
        ("retrieval_qa", "\nQuestion: Why?\nAnswer:"),
        ("retrieval_qa_numbered", "\nQuestion: Why?\nAnswer:"),
        ("kv_retrieval", '\nKey: "Why?"\nCorresponding value:'),
        ("molecule_generation", "\nAnswer:"),
    ],
)
def test_without_chat_template_a_prompt_ends_with_one_cue(task: str, ending: str) -> None:
    prompt = get_task(task).prompt(NO_TEMPLATE, question="Why?", documents=[Document("d")])
    assert texts(prompt)[2] == ending


def test_a_colon_that_ends_the_users_question_is_no_cue() -> None:
    prompt = get_task("retrieval_qa").prompt(NO_TEMPLATE, question="Complete:", documents=[Document("d")])
    assert texts(prompt)[2] == "\nQuestion: Complete:\nAnswer:"


@pytest.mark.parametrize(
    ("task", "text", "answers", "parsed", "score"),
    [
        ("retrieval_qa", " It is Oslo.\n", ["oslo"], "It is Oslo.", 1.0),
        ("retrieval_qa", "Not known.\nOslo?", ["Oslo"], "Not known.\nOslo?", 1.0),
        ("retrieval_qa_numbered", "Document [2] says Oslo", ["oslo"], "Document [2] says Oslo", 1.0),
        ("judge_pair", "Both. [[B]]", ["B"], "B", 1.0),
        ("judge_pair", "Both.", ["B"], None, 0.5),
        ("math_reasoning", "3 + 4 = 7.\nAnswer: 7.0", ["7"], "7.0", 1.0),
        ("math_reasoning", "3 + 4 = 7.", ["7"], None, 0.0),
        ("molecule_generation", "\nCCO is ethanol", ["CCO"], "CCO", 1.0),
        ("qm9", "CCO", ["CCO"], "CCO", 1.0),
        ("kv_retrieval", ' "9d8e",', ["9D8E"], "9d8e", 1.0),
    ],
)
def test_every_task_reads_and_scores_its_answers(
    task: str, text: str, answers: list[str], parsed: str | None, score: float
) -> None:
    assert TASKS[task].parse(text) == parsed
    assert TASKS[task].score(text, answers) == score


@pytest.mark.parametrize("task", TASKS)
def test_choices_are_answers_that_can_be_told_apart(task: str) -> None:
    read = [TASKS[task].parse(choice) for choice in TASKS[task].choices]
    assert read == (["A", "B"] if task == "judge_pair" else [])


@pytest.mark.parametrize("task", TASKS)
def test_no_answer_is_longer_than_the_specification_allows(task: str) -> None:
    (most,) = re.findall(
        r"^All tasks: greedy decoding, at most (\d+) new tokens", SPECIFICATION, re.MULTILINE
    )
    assert 0 < TASKS[task].max_new_tokens <= int(most)


@pytest.mark.parametrize(
    ("index", "letter"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (701, "ZZ"), (702, "AAA")]
)
def test_letters_count_as_columns_of_a_table_do(index: int, letter: str) -> None:
    assert document_letter(index) == letter


BRACES = st.text(alphabet="{}x0:!.ti letqusondcrp", max_size=12).filter(str.strip)


@pytest.mark.parametrize("task", TASKS)
@given(text=BRACES, title=BRACES, question=BRACES, instruction=BRACES)
def test_braces_in_users_text_are_no_templates(
    task: str, text: str, title: str, question: str, instruction: str
) -> None:
    prompt = TASKS[task].prompt(
        NO_TEMPLATE, question=question, documents=[Document(text, title)], instruction=instruction
    )
    prefix, (document,), suffix = texts(prompt)
    assert instruction in prefix
    assert text in document
    assert question in prefix + suffix or not TASKS[task].needs_question
    assert title in document or task == "judge_pair"


def test_properties_for_our_own_model_are_items_and_nothing_else() -> None:
    documents = [Document("7.8668", "gap"), Document("-5.8749", "homo")]
    prompt = get_task("qm9").prompt(NO_TEMPLATE, question="", documents=documents)
    assert texts(prompt)[:2] == ("", ["gap*7.8668* ", "homo*-5.8749* "])


@pytest.mark.parametrize("text", ["{question}", "{0}", "{", "}", "{{}}", "{title!r:>{width}}"])
def test_a_template_in_a_document_is_left_as_it_is(text: str) -> None:
    _, (document,), suffix = texts(prompt_of("retrieval_qa", [Document(text, text)], question=text))
    assert document == f"Document (Title: {text}) {text}\n"
    assert suffix == f"\nQuestion: {text}{CLOSING}"


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"molecule_generation", "qm9"}))
@pytest.mark.parametrize("question", ["", " \n"])
def test_a_question_is_required_where_the_task_asks_one(task: str, question: str) -> None:
    with pytest.raises(InputError, match="^there is no question; write one$"):
        prompt_of(task, [Document("d")], question)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("documents", "sentence"),
    [
        ([], "there are no documents; give at least one"),
        ([Document("a"), Document(" \n", "title")], "document 2 is empty; write some text or remove it"),
    ],
)
def test_documents_are_required_to_have_text(task: str, documents: list[Document], sentence: str) -> None:
    """The words around a document, which every task adds, do not make it text."""
    with pytest.raises(InputError, match=f"^{sentence}$"):
        prompt_of(task, documents)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        get_task("poetry")
    assert str(raised.value) == f"unknown task 'poetry'; choose from: {', '.join(TASKS)}"
