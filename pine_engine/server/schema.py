"""Bodies of the OpenAI API: supported fields, fields refused by name, and the errors of the API."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    model_validator,
)

from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.input_validation import describe_json
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs
from pine_engine.prompts.messages import Message, MessagesInput
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.rows.documents import DocumentsInput
from pine_engine.rows.parse_errors import ValidationErrors, format_validation_errors, unexpected
from pine_engine.rows.tables import MAX_DOCUMENTS
from pine_engine.rows.untrusted_json import ListInput
from pine_engine.scheduling.queue import QueueFullError

MAX_ALTERNATIVES = 20  # limit of the OpenAI API for top_logprobs
MAX_STOPS = 16  # stop strings of one request

GREEDY = "answers are greedy"
ONE = "there is one answer to each request"
NO_TOOLS = "the server calls no tools"
PLAIN = "answers are plain text"
STORED = "nothing is stored"
TEMPLATE = f'{KWARGS}, such as {{"enable_thinking": false}}, sets how a model thinks'
SUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    **{name: ((0,), GREEDY) for name in ("temperature", "frequency_penalty", "presence_penalty")},
    "top_p": ((1,), GREEDY),
    "logit_bias": (({},), GREEDY),
    "n": ((1,), ONE),
    "best_of": ((1,), ONE),
    **{name: (([],), NO_TOOLS) for name in ("tools", "functions")},
    **{name: (("none", "auto"), NO_TOOLS) for name in ("tool_choice", "function_call")},
    "web_search_options": ((), NO_TOOLS),
    "response_format": (({"type": "text"},), PLAIN),
    "modalities": ((["text"],), PLAIN),
    "audio": ((), PLAIN),
    "verbosity": (("medium",), "the prompt decides how long answers are"),
    **{name: ((), TEMPLATE) for name in ("reasoning_effort", "enable_thinking")},
    "moderation": ((), "answers are not moderated"),
    "echo": ((False,), "answers do not contain the prompt"),
    "suffix": (("",), "answers continue the prompt"),
}
"""Fields with the values that are supported, which change nothing, and the reason why no others are."""

IGNORED = {
    *("store", "seed", "user", "metadata", "service_tier", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "prediction"),
    *("parallel_tool_calls", "max_tool_calls"),
}
"""Fields that have no effect on a greedy answer without tools."""


class ApiError(PineError):
    """An error with its HTTP status, and its type and code in the OpenAI API."""

    def __init__(
        self, status: int, message: str, *, kind: str = "invalid_request_error", code: str, field: str = ""
    ) -> None:
        super().__init__(message, field=field or None)
        self.status, self.kind, self.code = status, kind, code


def error_body(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of an error response. Errors of the server have no details."""
    match error:
        case ApiError():
            status, kind, code = error.status, error.kind, error.code
        case QueueFullError():
            status, kind, code = 429, "rate_limit_error", "rate_limit_exceeded"
        case InputError() | ModelError(field="messages" | "chat_template"):  # also failures of the template
            status, kind, code = 400, "invalid_request_error", "invalid_value"
        case _:
            status, kind, code = 500, "server_error", "internal_error"
    is_known = isinstance(error, PineError)
    message = str(error) if is_known else "the server failed; its log has the reason"
    field = error.field if isinstance(error, PineError) else None
    return status, {"error": {"message": message, "type": kind, "param": field, "code": code}}


class StreamOptions(BaseModel):
    """Options of a stream; others are ignored."""

    include_usage: StrictBool | None = False


def _as_stops(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Body(BaseModel):
    """Fields of all endpoints. `documents` and `method` are extensions of the OpenAI API."""

    model_config = ConfigDict(extra="forbid")
    prompt_field: ClassVar[str]
    supported: ClassVar[Mapping[str, tuple[tuple[Any, ...], str]]] = SUPPORTED

    model: str = ""
    documents: DocumentsInput = Field(default=[], max_length=MAX_DOCUMENTS)
    method: str = ""
    max_tokens: StrictInt | None = Field(default=None, ge=1)
    stop: Annotated[
        ListInput[Annotated[str, Field(min_length=1)]],
        Field(max_length=MAX_STOPS),
        BeforeValidator(_as_stops),
    ] = []
    stream: StrictBool = False
    stream_options: StreamOptions = StreamOptions()

    @property
    def num_alternatives(self) -> int | None:
        """Number of alternatives for each token, None if no log-probabilities are requested."""
        return None


class MessagesBody(Body):
    """Fields of the endpoints for chats.

    `task` and `instruction` are extensions of the OpenAI API, and `chat_template_kwargs` as in vLLM.
    """

    prompt_field = "messages"

    messages: Annotated[MessagesInput, Field(min_length=1)]
    task: str = USUAL_TASK
    instruction: str = ""
    chat_template_kwargs: ChatTemplateKwargs = {}


class ChatBody(MessagesBody):
    """Body of /v1/chat/completions."""

    max_completion_tokens: StrictInt | None = Field(default=None, ge=1)
    logprobs: StrictBool = False
    top_logprobs: StrictInt = Field(default=0, ge=0, le=MAX_ALTERNATIVES)

    @property
    def num_alternatives(self) -> int | None:
        """Number of alternatives for each token, None if no log-probabilities are requested."""
        return self.top_logprobs if self.logprobs else None


def _as_messages(value: Any) -> Any:
    """Return the messages of an input; the thinking parts of earlier answers are empty ones."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        return value
    empty = {"role": "assistant", "content": ""}
    return [
        empty if isinstance(item, Mapping) and item.get("type") == "reasoning" else item for item in value
    ]


class ResponsesBody(MessagesBody):
    """Body of /v1/responses."""

    prompt_field = "input"
    supported = SUPPORTED | {
        "background": ((False,), "the answer is the response"),
        "background_options": ((), "the answer is the response"),
        "text": (({}, {"format": {"type": "text"}}), PLAIN),
        "image": ((), PLAIN),
        "reasoning": (({},), TEMPLATE),
        **{
            name: ((), f"{STORED}, so all messages are needed")
            for name in ("previous_response_id", "conversation")
        },
        "prompt": ((), STORED),
        "access_programs": ((), NO_TOOLS),
        "truncation": (("disabled",), "prompts are not shortened"),
        "context_management": (([],), "prompts are not shortened"),
    }

    messages: Annotated[
        MessagesInput, BeforeValidator(_as_messages), Field(min_length=1, validation_alias="input")
    ]
    max_tokens: StrictInt | None = Field(default=None, ge=1, validation_alias="max_output_tokens")
    instructions: str = ""
    include: ListInput[Literal["message.output_text.logprobs"]] = []
    top_logprobs: StrictInt = Field(default=0, ge=0, le=MAX_ALTERNATIVES)

    @property
    def num_alternatives(self) -> int | None:
        """Number of alternatives for each token, None if no log-probabilities are requested."""
        return self.top_logprobs if self.include or self.top_logprobs else None

    @model_validator(mode="after")
    def _add_instructions(self) -> Self:
        if self.instructions:
            self.messages = [Message("system", self.instructions), *self.messages]
        return self


def _one_prompt(prompt: Any) -> Any:
    if isinstance(prompt, list) and len(prompt) != 1:
        raise unexpected(prompt, "one text; send a request for each prompt")
    return prompt[0] if isinstance(prompt, list) else prompt


class CompletionBody(Body):
    """Body of /v1/completions."""

    prompt_field = "prompt"

    prompt: Annotated[str, BeforeValidator(_one_prompt)]
    logprobs: StrictInt | None = Field(default=None, ge=0, le=MAX_ALTERNATIVES)

    @property
    def num_alternatives(self) -> int | None:
        """Number of alternatives for each token, None if no log-probabilities are requested."""
        return self.logprobs


AnyBody = TypeVar("AnyBody", bound=Body)


def parse_body(body: Any, model: type[AnyBody]) -> AnyBody:
    """Return the body of a request. Raises InputError that names a field that is not supported."""
    if not isinstance(body, Mapping):
        raise InputError(f"invalid body: got {describe_json(body)}, expected a JSON object")
    fields = {name: value for name, value in body.items() if value is not None and name not in IGNORED}
    for name in fields.keys() & model.supported.keys():
        values, reason = model.supported[name]
        value = fields.pop(name)
        # In Python, True equals 1.
        if not any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values):
            accepted = " or ".join(map(json.dumps, values))
            message = f"{name} is not supported: got {describe_json(value)}, but {reason}"
            advice = f"remove it, or give {accepted}" if values else "remove it"
            raise ApiError(400, f"{message}; {advice}", code="unsupported_parameter", field=name)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error, as_json=True)) from error
