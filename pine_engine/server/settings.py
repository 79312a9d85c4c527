"""Settings of the server."""

from dataclasses import dataclass, field

from pine_engine.prompts.chat_templates import ChatTemplateKwargs
from pine_engine.web.addresses import LOCAL_NAMES

MAX_SECONDS = 300.0  # of an answer for clients on other machines, if no limit is set


@dataclass(frozen=True)
class ServerSettings:
    """Settings of the server.

    Attributes:
        method: Method of requests that name none. Default: Engine.default_method.
        max_new_tokens: Limit of tokens per answer, and its default.
        max_seconds: Limit of seconds per answer, without the time in the queue; None for no limit.
        queue_size: Requests that wait for the model.
        max_active_runs: Requests that are computed at the same time, if half of the free memory suffices.
        max_runs_per_client: Queued and active requests of one API key, or of one address without keys, at
            most half of `queue_size`.
        chat_template_kwargs: Arguments of the chat template, unless a request has others.
        api_keys: Accepted keys. If empty, authentication is disabled.
        allowed_hosts: Accepted Host headers; * for any.
        allowed_origins: Origins whose pages may use the server in a browser, such as https://app.example; *
            for any.
    """

    method: str | None = None
    max_new_tokens: int = 512
    max_seconds: float | None = None
    queue_size: int = 32
    max_active_runs: int = 8
    max_runs_per_client: int = 16
    chat_template_kwargs: ChatTemplateKwargs = field(default_factory=dict)
    api_keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = LOCAL_NAMES
    allowed_origins: tuple[str, ...] = ()
