"""The tasks: how each turns an instruction, documents and a question into a prompt, and scores its answer.

A task is a row of templates, with how its answers are read and scored. The wording and the scores follow
docs/specification.md section 9; what a template is filled with is the user's data and stays data.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry, as_str
from pine_engine.prompts.prompt import CUE, Document, DocumentLike, Prompt, as_documents, build_prompt
from pine_engine.prompts.scoring import (
    best_subspan_em,
    contains_value,
    normalize_answer,
    normalize_number,
    parse_number,
    parse_text,
    parse_value,
    parse_verdict,
    parse_word,
    score_number,
    score_verdict,
    score_word,
)


@dataclass(frozen=True)
class Nouns:
    """What the parts of a task are called where somebody fills them in.

    owner: stands between a document and its letter, such as "of assistant". title: "" where documents have
    none. finding: what is read in an answer of the model.
    """

    document: str = "document"
    documents: str = "documents"
    owner: str = ""
    title: str = "title"
    question: str = "question"
    finding: str = "answer"

    @property
    def a_document(self) -> str:
        """One of the documents, with its article."""
        return f"{'an' if self.document[0] in 'aeiou' else 'a'} {self.document}"

    def named(self, letter: str) -> str:
        """One document by its letter: "document B", "answer of assistant B"."""
        return " ".join(filter(None, (self.document, self.owner, letter)))


@dataclass(frozen=True)
class Task:
    """One kind of question about exchangeable documents.

    instruction: used where the user gives none; instruction_role says whose message it opens.
    The templates may name {instruction}, {question}, {title}, {text}, {letter} and {number}; letter (A,
    B, ...) and number (1, 2, ...) are those of the place where the document was entered, and stay with
    it when the documents are reordered.
    parse: what a generated answer says, None if nothing can be read from it.
    score: from 0 to 1, of the whole generated text and all accepted answers, at least one.
    normalize: of what was read; what is then the same is one answer, where several answers vote.
    max_new_tokens: the longest answer to measure with, in tokens; the specification allows 500 in any task.
    choices: what an answer comes down to, for comparing by log-probability; none where answers are open.
    Where documents bear letters, each names one, in their order.
    nouns: what its parts are called. splits: documents may come as sentences of one text, see premises.py.
    model: name of the model of our own that was trained for it; "" if any model may be asked.
    drawn_as: what is drawn of a finding, such as "molecule"; "" if it is text alone.
    """

    name: str
    label: str
    instruction: str
    instruction_role: Literal["user", "system"]
    prefix: str
    titled_document: str
    untitled_document: str
    suffix: str
    parse: Callable[[str], str | None]
    score: Callable[[str, Sequence[str]], float]
    max_new_tokens: int
    normalize: Callable[[str], str] = str
    choices: tuple[str, ...] = ()
    nouns: Nouns = Nouns()
    splits: bool = False
    model: str = ""
    drawn_as: Literal["", "molecule"] = ""

    @property
    def has_letters(self) -> bool:
        """True if documents bear letters, which can be swapped apart from the places."""
        return "{letter}" in self.titled_document + self.untitled_document

    @property
    def has_numbers(self) -> bool:
        """True if documents bear numbers, which tell where they were entered, also after reordering."""
        return "{number}" in self.titled_document + self.untitled_document

    @property
    def needs_question(self) -> bool:
        """True if the prompt has a place for a question."""
        return "{question}" in self.prefix + self.suffix

    def prompt(
        self,
        tokenizer: Any,
        *,
        question: str = "",
        documents: DocumentLike | Iterable[DocumentLike],
        instruction: str = "",
        system: str = "",
    ) -> Prompt:
        """The prompt in the model's own chat template.

        tokenizer: the model's, or an engine or processor that has it. documents: several or a single one.
        Raises InputError for no documents, an empty document, or an empty question where the task
        has one.
        """
        documents = as_documents(documents)
        question, instruction, system = (
            as_str(given, what)
            for given, what in ((question, "question"), (instruction, "instruction"), (system, "system text"))
        )
        if not question.strip() and self.needs_question:
            raise InputError("there is no question; write one")
        for index, document in enumerate(documents):
            if not document.text.strip():
                raise InputError(f"document {index + 1} is empty; write some text or remove it")
        instruction = instruction or self.instruction
        if self.instruction_role == "system":
            system = "\n\n".join(filter(None, (system, instruction)))
        return build_prompt(
            tokenizer,
            system=system,
            prefix=self.prefix.format(instruction=instruction, question=question),
            documents=[self._document(index, document) for index, document in enumerate(documents)],
            suffix=self.suffix.format(question=question),
            cue="" if self.suffix.endswith(":") else CUE,
        )

    def _document(self, index: int, document: Document) -> str:
        template = self.titled_document if document.title else self.untitled_document
        return template.format(
            letter=document_letter(index), number=index + 1, title=document.title, text=document.text
        )


def document_letter(index: int) -> str:
    """A, B, ..., Z, AA, AB, ...: a document's name, from its place at the time it was entered."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


_ANSWER_BLOCK = (
    "\n[The Start of Assistant {letter}'s Answer]\n{text}\n[The End of Assistant {letter}'s Answer]\n"
)

_ROWS = (
    Task(
        name="retrieval_qa",
        label="Question over documents",
        instruction=(
            "Write a high-quality one-sentence answer for the given question using only the provided "
            "search results (some of which might be irrelevant)."
        ),
        instruction_role="user",
        prefix="{instruction}\n\n",
        titled_document="Document (Title: {title}) {text}\n",
        untitled_document="Document: {text}\n",
        suffix="\nQuestion: {question}",
        parse=parse_text,
        score=best_subspan_em,
        normalize=normalize_answer,
        max_new_tokens=64,
    ),
    # The original of lost-in-the-middle. Its numbers tell the places, so it is a control for vanilla.
    Task(
        name="retrieval_qa_numbered",
        label="Numbered documents",
        instruction=(
            "Write a high-quality answer for the given question using only the provided search results "
            "(some of which might be irrelevant)."
        ),
        instruction_role="user",
        prefix="{instruction}\n\n",
        titled_document="Document [{number}](Title: {title}) {text}\n",
        untitled_document="Document [{number}] {text}\n",
        suffix="\nQuestion: {question}\nAnswer:",
        parse=parse_text,
        score=best_subspan_em,
        normalize=normalize_answer,
        max_new_tokens=64,
    ),
    Task(
        name="judge_pair",
        label="Judge two answers",
        instruction=(
            "Please act as an impartial judge and evaluate the quality of the responses provided by two "
            "AI assistants to the user question displayed below. You should choose the assistant that "
            "follows the user's instructions and answers the user's question better. Your evaluation "
            "should consider factors such as the helpfulness, relevance, accuracy, depth, creativity, and"
            " level of detail of their responses. Begin your evaluation by comparing the two responses "
            "and provide a short explanation. Avoid any position biases and ensure that the order in "
            "which the responses were presented does not influence your decision. Do not allow the length"
            " of the responses to influence your evaluation. Do not favor certain names of the "
            "assistants. Be as objective as possible. After providing your explanation, output your final"
            ' verdict by strictly following this format: "[[A]]" if assistant A is better, "[[B]]" if '
            "assistant B is better."
        ),
        instruction_role="system",
        prefix="[User Question]\n {question} \n",
        titled_document=_ANSWER_BLOCK,
        untitled_document=_ANSWER_BLOCK,
        suffix="",
        nouns=Nouns(
            document="answer",
            documents="answers to compare",
            owner="of assistant",
            title="",
            question="user’s question",
            finding="verdict",
        ),
        parse=parse_verdict,
        score=score_verdict,
        max_new_tokens=500,
        choices=("[[A]]", "[[B]]"),
    ),
    Task(
        name="math_reasoning",
        label="Conditions of a math problem",
        instruction=(
            "Solve this math problem. Give the reasoning steps before giving the final answer on the last"
            ' line by itself in the format of "Answer:". Do not add anything other than the integer '
            'answer after "Answer:".'
        ),
        instruction_role="user",
        prefix="{instruction}\n\n",
        titled_document="{title} {text} ",
        untitled_document="{text} ",
        suffix="{question}",
        nouns=Nouns(document="condition", documents="conditions", title="", finding="number"),
        splits=True,
        parse=parse_number,
        score=score_number,
        normalize=normalize_number,
        max_new_tokens=500,
    ),
    Task(
        name="molecule_generation",
        label="Molecule from properties",
        instruction="Write the SMILES string of a small organic molecule with these properties.",
        instruction_role="user",
        prefix="{instruction}\n\n",
        titled_document="{title}: {text}\n",
        untitled_document="{text}\n",
        suffix="",
        nouns=Nouns(document="property", documents="properties", title="name", finding="molecule"),
        drawn_as="molecule",
        parse=parse_word,
        score=score_word,
        max_new_tokens=48,
    ),
    Task(
        name="qm9",
        label="Molecule from properties, by the molecule model",
        instruction="",
        instruction_role="user",
        prefix="{instruction}",
        titled_document="{title}*{text}* ",
        untitled_document="{text}* ",
        suffix="",
        nouns=Nouns(document="property", documents="properties", title="name", finding="molecule"),
        model="molecules",
        drawn_as="molecule",
        parse=parse_word,
        score=score_word,
        max_new_tokens=48,
    ),
    Task(
        name="kv_retrieval",
        label="Value of a key",
        instruction="Extract the value corresponding to the specified key in the JSON object below.",
        instruction_role="user",
        prefix="{instruction}\n\nJSON data:\n",
        titled_document='"{title}": "{text}",\n',
        untitled_document='"{text}",\n',
        suffix='\nKey: "{question}"\nCorresponding value:',
        nouns=Nouns(document="value", documents="values", title="key", question="key", finding="value"),
        parse=parse_value,
        score=contains_value,
        normalize=str.lower,
        max_new_tokens=64,
    ),
)

TASKS: dict[str, Task] = Registry("task", _ROWS)

USUAL_TASK = "retrieval_qa"
"""Of what is asked without naming one."""


def get_task(name: str) -> Task:
    """The task of that name. Raises InputError for an unknown one."""
    return TASKS[name]
