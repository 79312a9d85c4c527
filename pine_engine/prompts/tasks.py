"""Tasks: the prompt templates of tasks.toml, and the parser and score of their answers.

The scores follow docs/specification.md section 9. Text that fills a template is data.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pine_engine.input_validation import Registry, as_str
from pine_engine.prompts import scoring
from pine_engine.prompts.chat_templates import ChatTemplateKwargs, with_date
from pine_engine.prompts.messages import MessageLike, read_chat
from pine_engine.prompts.prompt import CUE, Prompt, build_prompt
from pine_engine.prompts.scoring import Verdict
from pine_engine.rows.documents import Document, DocumentLike, as_documents
from pine_engine.rows.parse_errors import Problem, ValidationErrors


@dataclass(frozen=True)
class Nouns:
    """Names of the parts of a task in labels.

    The owner is between a document and its letter, such as "of assistant". The title is "" where documents
    have none. The finding is the parsed answer. The gold document is the one with the accepted answer, and
    the reader the model in this role. The score is the name of the mean score.
    """

    document: str = "document"
    documents: str = "documents"
    owner: str = ""
    title: str = "title"
    question: str = "question"
    finding: str = "answer"
    gold: str = "document with the answer"
    reader: str = "model"
    score: str = "accuracy"

    @property
    def a_document(self) -> str:
        """One document, with its article."""
        return f"{'an' if self.document[0] in 'aeiou' else 'a'} {self.document}"

    def named(self, letter: str) -> str:
        """Return one document by its letter: "document B", "answer of assistant B"."""
        return " ".join(filter(None, (self.document, self.owner, letter)))


@dataclass(frozen=True)
class Task:
    """One kind of request with exchangeable documents.

    The templates may contain {instruction}, {question}, {title}, {text}, {letter} and {number}. Letter (A,
    B, ...) and number (1, 2, ...) belong to the slot in which a document was entered, and stay with the
    document when documents are reordered.
    """

    name: str
    label: str  # in the page
    titled_document: str
    untitled_document: str
    suffix: str  # template of the text after the documents
    parse: Callable[[str], str | None]  # returns the answer in a generated text
    score: scoring.Score  # 0 to 1 for the generated text and all accepted answers
    rule: str  # name of the score, in `SCORES`
    former_names: tuple[str, ...] = ()  # in files and links of earlier versions
    instruction: str = ""  # for requests that have none
    max_new_tokens: int = 64  # limit in evaluations; the specification allows 500
    instruction_role: Literal["user", "system"] = "user"  # whose message the instruction opens
    uses_chat_template: bool = True  # False: plain text, which the answer continues
    prefix: str = "{instruction}\n\n"  # template of the text before the documents
    normalize: Callable[[str], str] = str  # maps answers that count as one answer in a vote to one string
    choices: tuple[str, ...] = ()  # compared by log-probability; of documents with letters, in their order
    # Templates of a task whose instruction, choices, parser and score depend on the number of documents. The
    # instruction may contain {count}, {better} and {choice_rules}.
    sized_instruction: str = ""
    choice: str = ""  # of the document with a {letter}
    # Texts that give a choice, from {choice} and the {text} of its document; their probabilities are added.
    choice_texts: tuple[str, ...] = ("{choice}",)
    choice_rule: str = ""  # meaning of a choice
    tie_rule: str = ""  # meaning of the choice behind those of the documents; "" if a tie is no verdict
    min_documents: int = 1
    max_documents: int | None = None
    without_letters: str = ""  # task whose prompt has no letters, but is equal otherwise
    parse_needs_documents: bool = False  # True if parser and score have the argument `options`
    metrics: tuple[str, ...] = ()  # default metrics of an evaluation; () for those of the backend
    nouns: Nouns = Nouns()
    model: str = ""  # shipped model that was trained for the task; "" for any model
    drawn_as: Literal["", "molecule"] = ""

    @property
    def has_letters(self) -> bool:
        """True if the prompt names documents by letters, which can be permuted apart from the slots."""
        return "{letter}" in self.titled_document + self.untitled_document

    @property
    def has_labels(self) -> bool:
        """True if the prompt has letters or numbers of documents, which stay with them when reordered."""
        return self.has_letters or "{number}" in self.titled_document + self.untitled_document

    @property
    def has_tie(self) -> bool:
        """True if the prompt offers a tie as a verdict, whose choice is behind those of the documents."""
        return bool(self.tie_rule)

    @property
    def is_judge(self) -> bool:
        """True if the answer is a verdict on the documents."""
        return self.rule == "verdict"

    @property
    def ranks(self) -> bool:
        """True if the answer is a ranking of the documents."""
        return self.rule == "ranking"

    @property
    def needs_question(self) -> bool:
        """True if the prompt has a place for a question."""
        return "{question}" in self.prefix + self.suffix

    def sized(self, num_documents: int, verdict: Verdict = "last") -> Self:
        """Return the task for a number of documents: its instruction, choices, parser and score.

        `verdict` is the one that counts in a text with several.
        """
        if not self.choice:
            return self
        last = max(num_documents, 2)
        last = min(last, self.max_documents or last)
        count = _NUMBERS[last] if last < len(_NUMBERS) else str(last)
        words = {"count": count, "better": "better" if last == 2 else "best"}
        letters = list(map(document_letter, range(last + self.has_tie)))
        choices = [self.choice.format(letter=letter) for letter in letters]
        templates = [self.choice_rule] * last + [self.tie_rule] * self.has_tie
        *rules, rule = (
            template.format(letter=letter, choice=choice, **words)
            for template, letter, choice in zip(templates, letters, choices, strict=True)
        )
        joined = ", ".join([*rules, rule if len(choices) == 2 else f"and {rule}"])
        options: dict[str, Any] = {"num_answers": last, "verdict": verdict, "has_tie": self.has_tie}
        return replace(
            self,
            instruction=self.sized_instruction.format(choice_rules=joined, **words),
            choices=tuple(choices),
            parse=partial(self.parse, **options),
            score=partial(self.score, **options),
        )

    def with_documents(self, texts: Sequence[str], relevance: Sequence[float] = ()) -> Self:
        """Return the task with a parser and a score that know the documents, sorted by their letters.

        Relevance is that for a ranking, by default 1 for the accepted answers.
        """
        if self.ranks:
            return replace(self, score=partial(self.score, relevance=relevance))
        if not self.parse_needs_documents:
            return self
        known: dict[str, Any] = {"options": texts}
        return replace(self, parse=partial(self.parse, **known), score=partial(self.score, **known))

    def prompt(
        self,
        tokenizer: Any,
        *,
        question: str = "",
        documents: DocumentLike | Iterable[DocumentLike],
        instruction: str = "",
        system: str = "",
        messages: Sequence[MessageLike] | None = (),
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Return the prompt, in the chat template of the model if the task uses it.

        Args:
            tokenizer: Tokenizer of the model, or an engine or processor that has it.
            question: Question; required by most tasks.
            documents: One document or several.
            instruction: Instruction in place of the one of the task.
            system: System message.
            messages: Chat in place of question and system message; the last message is the question.
            chat_template_kwargs: Arguments of the chat template, such as {"enable_thinking": False}.

        Raises:
            InputError: There is no document or question, one of them is empty, or the chat template does not
                have an argument.
        """
        documents = as_documents(documents)
        chat = read_chat(messages, question=question, system=system)
        question, system = chat.question, chat.system
        instruction = as_str(instruction, "instruction") or self.sized(len(documents)).instruction
        if problems := list(self.problems(question, documents)):
            raise ValidationErrors(problems)
        if self.instruction_role == "system":
            system = "\n\n".join(filter(None, (system, instruction)))
        return build_prompt(
            tokenizer if self.uses_chat_template else None,
            system=system,
            turns=chat.turns,
            prefix=self.prefix.format(instruction=instruction, question=question),
            documents=[self._fill(index, document) for index, document in enumerate(documents)],
            suffix=self.suffix.format(question=question),
            scores=[document.score for document in documents],
            cue="" if self.suffix.endswith((":", "\n")) else CUE,
            chat_template_kwargs=chat_template_kwargs,
        )

    def with_date(self, tokenizer: Any, kwargs: ChatTemplateKwargs) -> ChatTemplateKwargs:
        """Return arguments of the chat template, with the date of today if prompts contain it."""
        return with_date(tokenizer, kwargs) if self.uses_chat_template else kwargs

    def problems(self, question: str, documents: Sequence[Document]) -> Iterator[Problem]:
        """Yield the reasons why no prompt can be built."""
        if self.needs_question and not question.strip():
            yield Problem("there is no question; write one", "question")
        for index, document in enumerate(documents):
            if not document.text.strip():
                message = f"document {index + 1} is empty; write some text or remove it"
                yield Problem(message, f"documents[{index}]")
        least, most, count = self.min_documents, self.max_documents, len(documents)
        if count < least or count > (most or count):
            expected = f"{least} to {most}" if most else f"at least {least}"
            message = f"wrong number of {self.nouns.documents}: got {count}, expected {expected}"
            yield Problem(f"{message}; add or remove some", "documents")

    def _fill(self, index: int, document: Document) -> str:
        template = self.titled_document if document.title else self.untitled_document
        return template.format(
            letter=document_letter(index), number=index + 1, title=document.title, text=document.text
        )


_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")


def document_letter(index: int) -> str:
    """Return A, B, ..., Z, AA, AB, ...: the name of a document, by the slot in which it was entered."""
    rest, letter = divmod(index, 26)
    return (document_letter(rest - 1) if rest else "") + chr(ord("A") + letter)


def _load_tasks() -> Iterator[Task]:
    entries: dict[str, dict[str, Any]] = {}
    for keys in tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))["task"]:
        entry = entries.get(keys.pop("based_on", ""), {}) | keys
        entries[entry["name"]] = entry
        functions = {key: getattr(scoring, entry[key]) for key in ("parse", "normalize") if key in entry}
        functions["score"] = scoring.SCORES[entry["score"]][0]
        nouns = Nouns(**entry.get("nouns", {}))
        yield Task(**entry | functions | {"nouns": nouns}, rule=entry["score"]).sized(2)


TASKS: dict[str, Task] = Registry("task", _load_tasks())
"""Tasks by name, from tasks.toml; a task that depends on the number of documents, for two of them."""

USUAL_TASK = "retrieval_qa"  # task of requests that name none
