"""The wording of each task, as docs/specification.md section 9 has it, and parsers and scores of answers."""

import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from pine_engine import TASKS, Document, InputError, Prompt
from pine_engine.prompts.prompt import segment_text
from pine_engine.prompts.scoring import (
    TIE,
    Verdict,
    best_subspan_em,
    contains_value,
    parse_number,
    parse_text,
    parse_value,
    parse_verdict,
    parse_word,
    score_label,
    score_number,
    score_verdict,
    score_word,
)
from pine_engine.prompts.tasks import document_letter
from tests.support.errors import has_field
from tests.support.tokenizers import byte_tokenizer

CHATML = byte_tokenizer()
NO_TEMPLATE = byte_tokenizer(chat_template=None)

SPECIFICATION = (Path(__file__).parents[2] / "docs" / "specification.md").read_text(encoding="utf-8")


def published(pattern: str) -> str:
    (text,) = re.findall(pattern, SPECIFICATION, re.MULTILINE)
    assert isinstance(text, str)
    return text


JUDGE = published(r"^> (Please act as an impartial judge .*)$")
SEARCH = published(r"^SYS text: `([^`]*)`")
MATH = published(r"^`(Solve this math problem.*)\\n\\n\{problem\}`$")
OPTIONS = published(r"^> (The following are multiple choice questions\..*)$")
OPENING = "<|im_start|>user\n"
CLOSING = "<|im_end|>\n<|im_start|>assistant\n"


def texts(prompt: Prompt) -> tuple[str, list[str], str]:
    return segment_text(prompt.prefix), list(map(segment_text, prompt.documents)), segment_text(prompt.suffix)


TWO = [Document("Tides follow the moon.", "Tides"), Document("No title.")]
ANSWERS = [
    f"\n[The Start of Assistant {letter}'s Answer]\n{text}\n[The End of Assistant {letter}'s Answer]\n"
    for letter, text in (("A", "Tides follow the moon."), ("B", "No title."))
]


@pytest.mark.parametrize(
    ("task", "question", "prefix", "documents", "suffix"),
    [
        (
            "retrieval_qa", "Why?", f"{OPENING}{SEARCH}\n\n",
            ["Document (Title: Tides) Tides follow the moon.\n", "Document: No title.\n"],
            "\nQuestion: Why?",
        ),
        (
            "retrieval_qa_numbered", "Why?", f"{OPENING}{SEARCH.replace('one-sentence ', '')}\n\n",
            ["Document [1](Title: Tides) Tides follow the moon.\n", "Document [2] No title.\n"],
            "\nQuestion: Why?\nAnswer:",
        ),
        (
            "judge", "Why?",
            f"<|im_start|>system\n{JUDGE}<|im_end|>\n{OPENING}[User Question]\n Why? \n", ANSWERS, "",
        ),
        (
            "math_reasoning", "How many?", f"{OPENING}{MATH}\n\n",
            ["Tides Tides follow the moon. ", "No title. "], "How many?",
        ),
        (
            "molecule_generation", "",
            f"{OPENING}Write the SMILES string of a small organic molecule with these properties.\n\n",
            ["Tides: Tides follow the moon.\n", "No title.\n"], "",
        ),
        ("qm9", "", OPENING, ["Tides*Tides follow the moon.* ", "No title.* "], ""),
        (
            "kv_retrieval", "2a8d",
            f"{OPENING}Extract the value corresponding to the specified key in the JSON object below.\n\n"
            "JSON data:\n",
            ['"Tides": "Tides follow the moon.",\n', '"No title.",\n'],
            '\nKey: "2a8d"\nCorresponding value:',
        ),
        (
            "options", "Why?", f"{OPENING}{OPTIONS}\n\nQuestion: Why?\nOptions:\n",
            ["A. Tides follow the moon.\n", "B. No title.\n"], "Answer:",
        ),
        (
            "option_texts", "Why?", f"{OPENING}{OPTIONS}\n\nQuestion: Why?\nOptions:\n",
            ["Tides follow the moon.\n", "No title.\n"], "Answer:",
        ),
    ],
)  # fmt: skip
def test_prompt_has_the_wording_of_the_specification(
    task: str, question: str, prefix: str, documents: list[str], suffix: str
) -> None:
    assert texts(prompt_of(task, TWO, question)) == (prefix, documents, f"{suffix}{CLOSING}")


def prompt_of(task: str, documents: list[Document], question: str = "Why?", **options: Any) -> Prompt:
    return TASKS[task].prompt(CHATML, question=question, documents=documents, **options)


@pytest.mark.parametrize(
    ("task", "system", "user"),
    [("retrieval_qa", "Be kind.", "Go.\n\n"), ("judge", "Be kind.\n\nGo.", "[User Question]\n Why? \n")],
)
def test_user_instruction_replaces_the_one_of_the_task(task: str, system: str, user: str) -> None:
    prefix, _, _ = texts(prompt_of(task, TWO, instruction="Go.", system="Be kind."))
    assert prefix == f"<|im_start|>system\n{system}<|im_end|>\n{OPENING}{user}"


def test_letters_and_numbers_are_found_in_templates() -> None:
    lettered = [name for name, task in TASKS.items() if task.has_letters]
    assert lettered == ["judge", "judge_tie", "options", "ranking"]
    labeled = {name for name, task in TASKS.items() if task.has_labels}
    assert labeled == {*lettered, "retrieval_qa_numbered"}


@pytest.mark.parametrize(
    ("task", "ending"),
    [
        ("retrieval_qa", "\nQuestion: Which:\nAnswer:"),
        ("retrieval_qa_numbered", "\nQuestion: Which:\nAnswer:"),
        ("kv_retrieval", '\nKey: "Which:"\nCorresponding value:'),
        ("molecule_generation", "\nAnswer:"),
        ("few_shot", "Which:\n"),
    ],
)
def test_prompt_without_chat_template_ends_with_cue(task: str, ending: str) -> None:
    prompt = TASKS[task].prompt(NO_TEMPLATE, question="Which:", documents=[Document("d")])
    assert texts(prompt)[2] == ending


@pytest.mark.parametrize(
    ("task", "text", "answers", "parsed", "score"),
    [
        ("retrieval_qa", "Not known.\nOslo?\n", ["oslo"], "Not known.\nOslo?", 1.0),
        ("retrieval_qa_numbered", "Document [2] says Oslo", ["oslo"], "Document [2] says Oslo", 1.0),
        ("judge", "Both. [[B]]", ["B"], "B", 1.0),
        ("math_reasoning", "3 + 4 = 7.\nAnswer: 7.0", ["7"], "7.0", 1.0),
        ("molecule_generation", "\nCCO is ethanol", ["CCO"], "CCO", 1.0),
        ("qm9", "CCO", ["CCO"], "CCO", 1.0),
        ("kv_retrieval", ' "9d8e",', ["9D8E"], "9d8e", 1.0),
        ("few_shot", " \n**Positive.**\nNext text", ["negative", "Positive"], "positive", 1.0),
        ("few_shot", "Not positive", ["positive"], "not positive", 0.0),
    ],
)
def test_task_scores_answers(task: str, text: str, answers: list[str], parsed: Any, score: float) -> None:
    assert TASKS[task].parse(text) == parsed
    assert TASKS[task].score(text, answers) == score


@pytest.mark.parametrize("tokenizer", [CHATML, NO_TEMPLATE])
def test_few_shot_prompt_is_plain_text(tokenizer: Any) -> None:
    prompt = TASKS["few_shot"].prompt(tokenizer, question="Rain?", documents=TWO, instruction="Label.")
    demonstrations = ["Tides follow the moon.\nTides\n\n", "No title.\n\n"]
    assert texts(prompt) == ("Label.\n\n", demonstrations, "Rain?\n")
    assert not any(piece.is_markup for piece in prompt.prefix + prompt.suffix)


@pytest.mark.parametrize("task", TASKS)
def test_choices_and_limit_follow_the_specification(task: str) -> None:
    parsed = [TASKS[task].parse(choice) for choice in TASKS[task].choices]
    assert parsed == {"judge_tie": ["A", "B", TIE]}.get(task, ["A", "B"] if TASKS[task].choice else [])
    limit = published(r"^All tasks: greedy decoding, at most (\d+) new tokens")
    assert 0 < TASKS[task].max_new_tokens <= int(limit)


JUDGE_OF_FOUR = """
  output your final verdict by strictly following this format: "[[A]]" if assistant A is best, "[[B]]" if
  assistant B is best, "[[C]]" if assistant C is best, and "[[D]]" if assistant D is best."""
"""End of RewardBench 2's prompt."""


def test_judge_prompt_follows_number_of_answers() -> None:
    (prefix, documents, _) = texts(prompt_of("judge", [Document(text) for text in ("x", "y", "z", "u")]))
    assert " ".join(JUDGE_OF_FOUR.split()) in prefix
    assert "provided by four AI assistants" in prefix and "comparing the four responses" in prefix
    assert "two" not in prefix and "better" not in prefix
    assert [
        document.count(f"Assistant {letter}'s") for document, letter in zip(documents, "ABCD", strict=True)
    ] == [2] * 4
    for count in range(2, 9):
        task = TASKS["judge"].sized(count)
        assert [task.parse(choice) for choice in task.choices] == list("ABCDEFGH"[:count])
        assert task.sized(2).instruction == TASKS["judge"].instruction
    for count in (1, 9):
        with pytest.raises(InputError, check=has_field("documents")):
            prompt_of("judge", [Document("x")] * count)


@pytest.mark.parametrize(
    ("text", "count", "verdict", "parsed", "score"),
    [
        ("[[C]]", 3, "last", "C", 1.0), ("[[C]]", 2, "last", TIE, 0.5), ("[[D]]", 3, "last", None, 1 / 3),
        ("no", 8, "last", None, 1 / 8), ("[[C]], [[A]], [[B]]", 4, "last", "B", 0.0),
        ("[[C]], [[A]], [[B]]", 4, "first", "C", 1.0), ("[[C]], [[A]], [[B]]", 4, "alphabetical", "A", 0.0),
        ("[[C]] or [[B]]", 2, "alphabetical", "B", 0.0), ("[[C]] or [[B]]", 2, "first", TIE, 0.5),
    ],
)  # fmt: skip
def test_verdict_follows_number_of_answers_and_rule(
    text: str, count: int, verdict: Verdict, parsed: str | None, score: float
) -> None:
    task = TASKS["judge"].sized(count, verdict)
    assert (task.parse(text), task.score(text, ["C"])) == (parsed, score)


@pytest.mark.parametrize(
    ("index", "letter"), [(0, "A"), (25, "Z"), (26, "AA"), (51, "AZ"), (52, "BA"), (701, "ZZ"), (702, "AAA")]
)
def test_document_letters_count_like_spreadsheet_columns(index: int, letter: str) -> None:
    assert document_letter(index) == letter


BRACES = st.text(alphabet="{}x0:!.ti letqusondcrp", max_size=12).filter(str.strip)


@pytest.mark.parametrize("task", TASKS)
@given(text=BRACES, title=BRACES, question=BRACES, instruction=BRACES)
def test_braces_of_user_are_data(task: str, text: str, title: str, question: str, instruction: str) -> None:
    parts: dict[str, Any] = {"question": question, "instruction": instruction}
    prompt = TASKS[task].prompt(NO_TEMPLATE, documents=[Document(text, title), "B"], **parts)
    prefix, (document, _), suffix = texts(prompt)
    assert instruction in prefix
    assert text in document
    assert question in prefix + suffix or not TASKS[task].needs_question
    assert title in document or not TASKS[task].nouns.title


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("documents", "question", "field"),
    [(["a"], "", "question"), (["a"], " \n", "question"), ([], "Why?", "document"),
     (["a", " \n"], "Why?", "documents[1]")],
)  # fmt: skip
def test_missing_part_is_rejected(task: str, documents: list[str], question: str, field: str) -> None:
    needs_question = task not in ("molecule_generation", "qm9")
    assert TASKS[task].needs_question == needs_question
    if field != "question" or needs_question:
        with pytest.raises(InputError, check=has_field(field)):
            prompt_of(task, list(map(Document, documents)), question)


WORDS = st.text(alphabet="abtheAn.,-'$“é \n\t09", max_size=30)
"""Text that is dense in what the rules look for: articles, punctuation, white space."""


@pytest.mark.parametrize(
    ("score", "text", "answers", "expected"),
    [
        (best_subspan_em, "It was Röntgen.", ["Wilhelm Conrad Röntgen", "röntgen"], 1.0),
        (best_subspan_em, "They sang with a Beatles cover band.", ["The Beatles"], 1.0),
        (best_subspan_em, "In the U.S. of A.", ["US of A"], 1.0), (best_subspan_em, "", ["anything"], 0.0),
        *((best_subspan_em, "Not known.", answers, 0.0) for answers in (["The"], ["A", "?"], ["", " "], [])),
        *((best_subspan_em, text, ["A"], 1.0) for text in ("A", "**A**", "It is (A).", "Answer:A")),
        *((best_subspan_em, text, ["A"], 0.0) for text in ("It is a pity.", "An A4 page", "ABBA")),
        (best_subspan_em, "The  The", ["The The"], 1.0), (best_subspan_em, "It costs $5", ["$"], 1.0),
        *((score, "It was O’Brien’s.", ["O'Brien's"], 1.0) for score in (best_subspan_em, contains_value)),
        *((score, "In Zu\u0308rich", ["Z\u00fcrich"], 1.0) for score in (best_subspan_em, contains_value)),
        *((score, "In Z\u00fcrich", ["Zu\u0308rich"], 1.0) for score in (best_subspan_em, contains_value)),
        (contains_value, "9d8e", [""], 0.0), (score_label, "Cafe\u0301!", ["caf\u00e9"], 1.0),
        (score_label, "\n+\n\nA tea.", ["+"], 1.0), (score_label, "-", ["+"], 0.0),
        (score_verdict, "[[A]]", ["A"], 1.0), (score_verdict, "[[A]] [[B]]", ["B"], 1.0),
        (score_verdict, "A", ["A"], 0.5), 
        (score_verdict, "[[C]]", ["A"], 0.5), (score_verdict, "[[C]]", [TIE], 1.0),
        (score_number, "Answer: 72", ["72"], 1.0),
        (score_number, "Answer: 72.50", ["72.5"], 1.0), (score_number, "Answer: 72.5", ["72.50"], 0.0),
        (score_number, "Answer: 1000", ["1,000"], 1.0), (score_number, "Answer: 072", ["72"], 0.0),
        (score_number, "Answer: -3", ["-3"], 0.0), (score_number, "Answer: 72", ["71", "72"], 1.0),
        (score_number, "It is 72.", [""], 0.0), (contains_value, "It is 9D8E, I think.", ["9d8e"], 1.0),
        (contains_value, "It is 9d8e.", ["9D8E"], 1.0), (contains_value, "9d-8e", ["9d8e"], 0.0),
        (contains_value, "b", ["a", "b"], 1.0), (contains_value, "", ["a"], 0.0),
        (score_word, "\n CC(=O)C is acetone", ["CCC", "CC(=O)C"], 1.0),
        (score_word, "cc(=o)c", ["CC(=O)C"], 0.0), (score_word, " \n", ["CC(=O)C"], 0.0),
    ],
)  # fmt: skip
def test_score_equals_hand_worked_case(
    score: Callable[[str, list[str]], float], text: str, answers: list[str], expected: float
) -> None:
    assert score(text, answers) == expected


@pytest.mark.parametrize(
    ("text", "in_all", "in_first"),
    [("Not known.\nOslo.", 1.0, 0.0), ("Oslo.\nOr not.", 1.0, 1.0), ("\nOslo", 1.0, 0.0)],
)
def test_first_line_option_ignores_later_lines(text: str, in_all: float, in_first: float) -> None:
    assert best_subspan_em(text, ["Oslo"]) == in_all
    assert best_subspan_em(text, ["Oslo"], first_line=True) == in_first


@given(before=WORDS, answer=WORDS.filter(str.strip), after=WORDS, others=st.lists(WORDS, max_size=3))
@example(before="the", answer="a cat", after="", others=[])
def test_literal_answer_counts_at_any_place(before: str, answer: str, after: str, others: list[str]) -> None:
    assert best_subspan_em(f"{before} {answer} {after}", [*others, answer]) == 1.0


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (parse_verdict, '"[[B]]" it is, not [[A]]', "A"), (parse_verdict, "[[C]]", TIE),
        (parse_verdict, "[[D]]", None),
        (parse_verdict, "Assistant A is better.", None), (parse_verdict, "[[a]]", None),
        (parse_verdict, "[[ A ]]", None), (parse_verdict, "[[[A]]]", "A"),
        (parse_number, "3 + 4 = 7\nAnswer: 7.", "7"), (parse_number, "Answer: $1,234.50", "1234.50"),
        (parse_number, "Answer: 7\nThe Answer is 8, not 9. Answer:", None),
        (parse_number, "Answer: 7\nAnswer: eight", None), (parse_number, "Answer: -12", "12"),
        (parse_number, "answer: 7", None), (parse_number, "Answer: .5", "5"),
        (parse_number, "Answer: 1.2.3", "3"), (parse_number, "Answer: 3..", "3"),
        (parse_number, "7 Answer", None), (parse_value, ' "9d8e-77",\n', "9d8e-77"),
        (parse_value, "\n\n  9d8e\nand more", "9d8e"), (parse_value, ' "" ,\n"b"', "b"),
        (parse_value, "\r\nb\r\n", "b"), (parse_word, "\n CC(=O)C is acetone", "CC(=O)C"),
        (parse_word, " \n", None),
        *((parse, "", None) for parse in (parse_verdict, parse_number, parse_value, parse_word)),
    ],
)  # fmt: skip
def test_parser_returns_value(parse: Callable[[str], str | None], text: str, expected: str | None) -> None:
    assert parse(text) == expected


@given(number=st.integers(min_value=0, max_value=10**12), zeros=st.integers(0, 4), before=WORDS)
@example(number=100, zeros=0, before="")
@example(number=0, zeros=1, before="")
def test_number_counts_in_any_notation(number: int, zeros: int, before: str) -> None:
    ending = "." + "0" * zeros if zeros else ""
    for written in (str(number), f"{number:,}"):
        assert score_number(f"{before}Answer: ${written}{ending}.", [str(number)]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [f"{number:,}"]) == 1.0
        assert score_number(f"{before}Answer: {written}{ending}", [str(number + 1)]) == 0.0


@given(text=st.text(max_size=40), answers=st.lists(st.text(max_size=8), min_size=1, max_size=3))
def test_any_text_has_a_score(text: str, answers: list[str]) -> None:
    assert best_subspan_em(text, answers) in (0.0, 1.0)
    assert score_verdict(text, ["A"]) + score_verdict(text, ["B"]) == 1.0
    assert score_number(text, answers) in (0.0, 1.0)
    assert contains_value(text, answers) in (0.0, 1.0)
    assert score_word(text, answers) in (0.0, 1.0)
    assert parse_text(text) == (text.strip() or None)
    for parse in (parse_text, parse_verdict, parse_number, parse_value, parse_word):
        assert parse(text) != ""


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("B", "B"), (" b.", "B"), ("(B)", "B"), ("**B**", "B"), ("B) the dog", "B"),
        ("B\nBecause A is old.", "B"),
        ("The answer is B.", "B"), ("Answer: (B)", "B"), ("Die Antwort ist B.", "B"), ("[[B]]", "B"),
        (r"So A? No: \boxed{B}", "B"), ("A is wrong. The answer is B, not C.", "B"),
        ("Option B is right.", "B"),
        ("The answer is A. No, the answer is B.", "B"),
        ("A dog", "B"), ("The answer is a dog.", "B"), ("a dog.", "B"), ("The answer is A dog", "B"),
        ("It has to be the dog.", "B"), ("I saw a cat and a dog.", "C"), ("Is it the cat or the AB?", None),
        ("AB", "D"), ("I think", None), ("A or B", None), ("", None), ("none", None), ("E", None),
        ("A dogma of cats", None),
    ],
)  # fmt: skip
def test_option_is_parsed_by_letter_or_text(text: str, parsed: str | None) -> None:
    task = TASKS["options"].sized(4).with_documents(["cat", "dog", "a cat and a dog", "AB"])
    assert task.parse(text) == parsed
    assert task.score(text, ["B"]) == float(parsed == "B")


@pytest.mark.parametrize("count", [2, 3, 12, 26])
def test_options_have_a_letter_each(count: int) -> None:
    task = TASKS["options"].sized(count)
    assert list(task.choices) == list(string.ascii_uppercase[:count])
    assert [task.parse(choice) for choice in task.choices] == list(task.choices)
    assert task.with_documents(list(map(str, range(count)))).parse(str(count - 1)) == task.choices[-1]


def test_option_takes_the_verdict_that_counts() -> None:
    text = "The answer is C. The answer is A. The answer is B."
    found = [TASKS["options"].sized(3, verdict).parse(text) for verdict in ("first", "last", "alphabetical")]
    assert found == ["C", "B", "A"]
