"""Options of a model behind an address."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pine_engine.cli.options import ModelOptions, Positive
from pine_engine.errors import InputError
from pine_engine.prompts.chat_templates import ChatTemplateKwargs

if TYPE_CHECKING:  # these import torch
    from pine_engine.backend import Backend
    from pine_engine.endpoint.client import Endpoint


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
        return endpoint.bind_template_kwargs(template_kwargs)[0]


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
