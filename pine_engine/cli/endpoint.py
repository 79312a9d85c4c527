"""Options of a model behind an address, and its requests with an estimate, progress and a result each."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pine_engine.cli import output
from pine_engine.cli.options import ModelOptions, Positive
from pine_engine.cli.output import CommandResult
from pine_engine.endpoint import NOT_GREEDY
from pine_engine.endpoint.repeats import Repeats
from pine_engine.errors import EndpointError, InputError
from pine_engine.prompts.chat_templates import ChatTemplateKwargs

if TYPE_CHECKING:  # these import torch
    from pine_engine.backend import Backend
    from pine_engine.endpoint.client import Endpoint
    from pine_engine.endpoint.replies import Reply
    from pine_engine.endpoint.requests import TextRequest

MAX_NAMED = 10  # refused requests that are listed


@dataclass(frozen=True)
class EndpointOptions:
    """Options of the subcommands that can send requests to a server in place of loading a model.

    Attributes:
        endpoint: Address of a server with the interface of the OpenAI API, such as http://127.0.0.1:8000/v1,
            which computes the answers of the model named by --model. The key is read from OPENAI_API_KEY.
            Default methods are vanilla and reorder_content.
        max_concurrency: Maximum number of requests to the endpoint at the same time.
        extra_body: Further fields of each request to the endpoint, a JSON object such as
            '{"repeat_penalty": 1.0}'. null leaves a field out: '{"temperature": null}' for models that refuse
            it.
    """

    endpoint: str | None = None
    max_concurrency: Positive = 4
    extra_body: str = "{}"

    def open_backend(
        self, model: ModelOptions, template_kwargs: ChatTemplateKwargs
    ) -> "tuple[Backend, ChatTemplateKwargs]":
        """Return the endpoint, or the loaded model, and the arguments of the chat template to render here.

        Raises InputError for options that do not fit.
        """
        if endpoint := self.open(model, template_kwargs):
            return endpoint, {}
        return model.load(needs_tokenizer=True), template_kwargs

    def open(self, model: ModelOptions, template_kwargs: ChatTemplateKwargs) -> "Endpoint | None":
        """Return the endpoint, whose server gets the arguments of its chat template; None without an address.

        Raises InputError for options that do not fit.
        """
        if self.endpoint is None:
            if self != EndpointOptions():
                message = (
                    "--max-concurrency and --extra-body belong to --endpoint; leave them out, or give it"
                )
                raise InputError(message, field="endpoint")
            return None
        if not model.model:
            message = "--endpoint needs --model, the name of the model on the server"
            raise InputError(message, field="model")
        if (model.dtype, model.device) != (ModelOptions.dtype, ModelOptions.device):
            raise InputError("--dtype and --device belong to a loaded model; leave them out", field="dtype")
        from pine_engine.endpoint.client import Endpoint

        endpoint = Endpoint(
            self.endpoint,
            model.model,
            api_key=os.environ.get("OPENAI_API_KEY"),
            max_concurrency=self.max_concurrency,
            extra_body=_json_object(self.extra_body),
        )
        return endpoint.with_template_kwargs(template_kwargs)


def _json_object(text: str) -> dict[str, Any]:
    """Return a JSON object. Raises InputError for other text."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        message = f"invalid --extra-body: got {text!r:.60}, expected a JSON object"
        raise InputError(f"{message} such as '{{\"repeat_penalty\": 1.0}}'", field="extra_body")
    return content


class Sent(NamedTuple):
    """Replies by request, those of refused requests with an error.

    Attributes:
        replies: Reply to each request.
        repeats: Count of the repeated requests.
        is_greedy: False if the answers are sampled.
    """

    replies: "dict[TextRequest, Reply]"
    repeats: Repeats
    is_greedy: bool

    def finish(self, result: CommandResult, names: Sequence[str]) -> CommandResult:
        """Return a result with repeats, sampling and refusals, which are a failure.

        names: name of each request, in their order.
        """
        refused = [
            (name, reply.error)
            for name, reply in zip(names, self.replies.values(), strict=True)
            if reply.error
        ]
        report = result.report | {
            "repeated": asdict(self.repeats),
            "is_greedy": self.is_greedy,
            "refused": [{"request": name, "error": error} for name, error in refused],
        }
        notes = [*result.notes, *self.repeats.notes(), *([] if self.is_greedy else [NOT_GREEDY])]
        if refused:
            counts = Counter(refused)
            notes.append(f"{len(refused)} of {len(self.replies)} requests have no answer:")
            for (name, error), count in list(counts.items())[:MAX_NAMED]:
                notes.append(f"  {name}{f' ({count} times)' if count > 1 else ''}: {error}")
            notes += [f"  and {len(counts) - MAX_NAMED} others"] if len(counts) > MAX_NAMED else []
        status = output.FAILED if refused else result.status
        return result._replace(report=report, notes=notes, status=status)


def send(endpoint: "Endpoint", requests: Sequence["TextRequest"]) -> Sent:
    """Send the requests; print an estimate first.

    After a failure of all requests, those without an answer have it as their error.
    Raises EndpointError if there is no answer at all.
    """
    from pine_engine.endpoint.replies import Reply
    from pine_engine.endpoint.requests import describe_requests

    output.print_note(describe_requests(requests))
    found: dict[TextRequest, Reply] = {}
    failure = ""
    with output.progress(len(requests)) as advance, closing(endpoint.send(requests)) as pairs:
        try:
            for request, reply in pairs:
                found[request] = reply
                advance(f"{request.method.name}: answer finished")
        except EndpointError as error:
            if all(reply.error for reply in found.values()):
                raise
            failure = str(error)
    replies = {request: found.get(request) or Reply(error=failure) for request in requests}
    return Sent(replies, Repeats.count(reply.is_repeatable for reply in replies.values()), endpoint.is_greedy)
