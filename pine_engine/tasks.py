"""The tasks: how each turns an instruction, documents and a question into a prompt.

A task is a row of templates. The wording follows docs/specification.md section 9; what a template is
filled with is the user's data and stays data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pine_engine.errors import InputError
from pine_engine.prompt import Document, Prompt, build_prompt


@dataclass(frozen=True)
class Task:
    """One kind of question about exchangeable documents.

    instruction: used where the user gives none; instruction_role says whose message it opens.
    The templates may name {instruction}, {question}, {title}, {text} and {letter}; the letter is the
    document's own (A, B, ...) and stays with it when the documents are reordered.
    """

    name: str
    label: str
    instruction: str
    instruction_role: Literal["user", "system"]
    prefix: str
    titled_document: str
    untitled_document: str
    suffix: str

    def prompt(
        self,
        tokenizer: Any,
        *,
        question: str,
        documents: Sequence[Document],
        instruction: str = "",
        system: str = "",
    ) -> Prompt:
        """The prompt in the model's own chat template.

        Raises InputError for no documents, an empty document, or an empty question where the task
        has one.
        """
        if not question.strip() and "{question}" in self.suffix + self.prefix:
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
        )

    def _document(self, index: int, document: Document) -> str:
        template = self.titled_document if document.title else self.untitled_document
        return template.format(letter=document_letter(index), title=document.title, text=document.text)


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
    ),
)

TASKS: dict[str, Task] = {row.name: row for row in _ROWS}


def get_task(name: str) -> Task:
    """The task of that name. Raises InputError for an unknown one."""
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; choose from: {', '.join(TASKS)}")
    return TASKS[name]
