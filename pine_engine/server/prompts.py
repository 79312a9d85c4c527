"""Tokens of a request: documents in a field, documents marked in the text, or a prompt without documents."""

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.marked import chat_prompt, tokenize_marked
from pine_engine.prompts.messages import read_chat
from pine_engine.prompts.prompt import Document, Piece, Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from pine_engine.server.schema import ApiError, ChatBody, CompletionBody

MAX_CHARACTERS_PER_TOKEN = 30  # of a prompt; even code with deep indents has fewer

HOW_TO_GIVE_DOCUMENTS = (
    'give "documents": ["...", {"title": "...", "text": "..."}], or mark each in the text as '
    "<document>...</document>"
)


def check_characters(engine: Engine, body: ChatBody | CompletionBody) -> None:
    """Raise ApiError for a prompt that is too long for the model, without tokenizing it."""
    texts = [text for document in body.documents for text in (document.title, document.text)]
    if isinstance(body, ChatBody):
        texts += [body.instruction, *(message.content for message in body.messages)]
    else:
        texts.append(body.prompt)
    count, most = sum(map(len, texts)), MAX_CHARACTERS_PER_TOKEN * engine.max_context_length
    if count > most:
        message = f"prompt is too long: got {count:,} characters, expected up to {most:,}; shorten the prompt"
        raise ApiError(400, message, code="context_length_exceeded", field=body.prompt_field)


def tokenize_body(engine: Engine, body: ChatBody | CompletionBody) -> tuple[TokenLayout, int]:
    """Return the tokens of a prompt, and the number of its documents, 0 for a plain prompt.

    The layout of a plain prompt has one document, under which every method equals vanilla. Raises InputError.
    """
    if isinstance(body, ChatBody):
        return _tokenize_chat(engine, body)
    return _tokenize_text(engine, body)


def _tokenize_chat(engine: Engine, body: ChatBody) -> tuple[TokenLayout, int]:
    if body.documents:
        prompt = TASKS[body.task].prompt(
            engine.tokenizer, documents=body.documents, instruction=body.instruction, messages=body.messages
        )
        return engine.tokenize(prompt), len(body.documents)
    if body.instruction or body.task != USUAL_TASK:
        message = f"a task or an instruction was passed without documents; {HOW_TO_GIVE_DOCUMENTS}"
        raise InputError(message, field="documents")
    prompt, num_documents = chat_prompt(engine.tokenizer, read_chat(body.messages))
    return engine.tokenize(prompt), num_documents


def _tokenize_text(engine: Engine, body: CompletionBody) -> tuple[TokenLayout, int]:
    if body.documents:
        documents = tuple(map(_paragraph, body.documents))
        return engine.tokenize(Prompt((), documents, (Piece(body.prompt),))), len(documents)
    return tokenize_marked(engine, body.prompt)


def _paragraph(document: Document) -> tuple[Piece, ...]:
    """Return title and text, followed by an empty line."""
    return (Piece("\n".join(filter(None, (document.title, document.text))) + "\n\n"),)
