"""Settings of the host: model, address and limits."""

import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, CliApp, NoDecode, SettingsConfigDict

from pine_engine.errors import InputError
from pine_engine.input_validation import check_api_key, describe
from pine_engine.models.dtypes import RequestedDtype
from pine_engine.models.embedded import EMBEDDED_NAME
from pine_engine.web.addresses import LOCAL_NAMES, LOOPBACK, Network, is_host_name, is_host_pattern

MAX_COUNT = 1_000_000  # upper limit of counts that reserve no memory
MAX_SECONDS = 604_800  # upper limit of times: a week, in seconds
PUBLIC_SECONDS = 300  # default run timeout of a public page, in seconds
PRIVATE_NETWORKS: tuple[Network, ...] = (
    *LOOPBACK,
    *map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    IPv6Network("fc00::/7"),
)
"""Networks of the proxies of a Space."""

OTHER_VARIABLES = ("PINE_API_KEYS", "PINE_API_KEY", "PINE_BASE_URL", "PINE_CHROMIUM")
"""Variables of `serve`, of its clients and of the tests."""

_SEGMENT = r"([A-Za-z0-9._~!$&+,;=:@-]|%[0-9A-Fa-f]{2})+"
"""Part of a path as browsers send it, without quotes and brackets, which HTML and templates interpret."""


def _split(value: Any) -> Any:
    """Split a text at commas; return any other value unchanged."""
    if isinstance(value, str):
        return tuple(filter(None, (part.strip() for part in value.split(","))))
    return value


def _check_host(name: str) -> str:
    if not is_host_pattern(name):
        raise ValueError(
            f"No request can match {name!r:.60}, expected a name such as pine.example or *.pine.example, or "
            "an address, without scheme, port, brackets and path"
        )
    return name


def _check_url_host(address: str) -> str:
    """Check the host and port in an address that begins with http."""
    try:
        parts = urlsplit(address)
        is_valid = not parts.scheme or (is_host_name(parts.hostname or "") and parts.port != 0)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"{address!r:.60} has no valid host, expected one such as http://127.0.0.1:8000")
    return address


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(_check_host)], ...], NoDecode, BeforeValidator(_split)]
Networks = Annotated[
    tuple[Annotated[Network, BeforeValidator(lambda name: ip_network(name, strict=False))], ...],
    NoDecode,
    BeforeValidator(_split),
]


class HostSettings(BaseSettings):
    """Settings of the host. Each option is also an environment variable: --read-only is PINE_READ_ONLY."""

    model_config = SettingsConfigDict(
        env_prefix="PINE_",
        env_ignore_empty=True,
        frozen=True,
        cli_prog_name="app.py",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
    )

    model: str | None = Field(
        default=None, description="Hub id, folder or GGUF file. Default: the embedded model."
    )
    dtype: RequestedDtype = Field(
        default="auto",
        description="Dtype of the model: float32, bfloat16, float16, 4bit (float32 with 4-bit weights for "
        "decode), or auto: the dtype of the stored weights if the processor supports it, else "
        "float32; bfloat16 on a GPU.",
    )
    device: str = Field(default="cpu", description="Torch device, such as cpu or cuda.")
    host: str | None = Field(default=None, description="Address to listen on. Default: this machine only.")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="Port. Default: 7860 or the next free one."
    )
    root_path: str = Field(
        default="",
        pattern=rf"^(https?://[^\s/?#@]+)?(/{_SEGMENT})*/?$",
        description="Path of the page behind a reverse proxy, such as /pine.",
    )
    allowed_hosts: Hosts = Field(
        default=(),
        description="Host names of the page and origins that may call it, separated by commas; * allows any. "
        "Default: localhost for a local page; every name for a public one, without other origins.",
    )
    trusted_proxies: Networks = Field(
        default=(),
        description="Addresses or networks of reverse proxies whose X-Forwarded-* headers are accepted, "
        "separated by commas. Default: loopback; on a Space its proxies.",
    )
    auth: str = Field(
        default="",
        pattern=r"^$|^[^:\s]+:.+$",
        description="Login as name:password. If empty, authentication is disabled.",
        repr=False,
    )
    models: Names = Field(
        default=(),
        description="Models that visitors can choose, separated by commas. Default: any for a local page; "
        "only the host's model for a public one.",
    )
    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#@]*)?$",
        description="Address of a server with the OpenAI API, such as http://127.0.0.1:8000/v1, which "
        "answers in place of a loaded model. PINE_MODEL is then the name of the model on the server.",
    )
    extra_body: str = Field(
        default="",
        description="Further fields of each request to the endpoint, as a JSON object; null leaves a field "
        'out, such as {"temperature": null} for models that refuse it.',
    )
    read_only: bool = Field(default=False, description="Visitors run the included examples only.")
    max_prompt_tokens: Annotated[int, Field(ge=1, le=1_000 * MAX_COUNT)] | None = Field(
        default=None, description="Tokens per prompt. Default: the context length of the model."
    )
    max_seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)] | None = Field(
        default=None,
        description="Seconds per run, without the time in the queue. Default: unlimited for a local page, "
        f"{PUBLIC_SECONDS} for a public one.",
    )
    max_active_runs: int = Field(
        default=8,
        ge=1,
        le=MAX_COUNT,
        description="Runs that are computed at the same time, if half of the free memory suffices. Their "
        "decode steps are shared.",
    )
    share_equal_runs: bool = Field(
        default=True,
        description="Compute equal requests of several visitors, and the prefill of equal documents, once "
        "while they are active.",
    )
    max_disk_mb: Annotated[float, Field(gt=0, le=1_000 * MAX_COUNT)] = Field(
        default=1000, description="Megabytes of disk for uploads and saved files of all visitors."
    )

    @field_validator("host")
    @classmethod
    def _check_listening_host(cls, host: str | None) -> str | None:
        if host is not None and not is_host_name(host):
            raise ValueError("Expected an address or a name of this machine, such as 0.0.0.0")
        return host

    @field_validator("root_path")
    @classmethod
    def _check_root_path(cls, root_path: str) -> str:
        if any(part in (".", "..") for part in root_path.split("/")):  # browsers resolve these parts
            raise ValueError("Expected a path without . and .., such as /pine")
        return _check_url_host(root_path)

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str | None, info: ValidationInfo) -> str | None:
        if endpoint is None:
            return None
        if not info.data.get("model"):
            raise ValueError("Set PINE_MODEL to the name of the model on the server")
        if info.data.get("models"):
            raise ValueError("Remove PINE_MODELS: visitors use the model of the server")
        if key := os.environ.get("OPENAI_API_KEY"):
            check_api_key(key, "OPENAI_API_KEY")
        return _check_url_host(endpoint)

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, extra_body: str, info: ValidationInfo) -> str:
        if extra_body and not info.data.get("endpoint"):
            raise ValueError("Set PINE_ENDPOINT, to which the fields are sent")
        try:
            fields = json.loads(extra_body or "{}")
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ValueError('Expected a JSON object such as {"temperature": null}')
        return extra_body

    @property
    def is_space(self) -> bool:
        """Check whether this is a Hugging Face Space."""
        return "SPACE_ID" in os.environ

    @property
    def is_public(self) -> bool:
        """Check whether other machines can reach the page: by its address, a proxy, a tunnel or a Space."""
        return (
            (self.host or os.environ.get("GRADIO_SERVER_NAME") or "localhost") not in LOCAL_NAMES
            or not set(self.allowed_hosts) <= set(LOCAL_NAMES)
            or bool(self.root_path or os.environ.get("GRADIO_ROOT_PATH"))
            or os.environ.get("GRADIO_SHARE", "").lower() == "true"
            or self.is_space
        )

    @property
    def proxies(self) -> tuple[Network, ...]:
        """Return the proxies whose X-Forwarded-* headers are trusted: named ones, and those of a Space."""
        return self.trusted_proxies or (PRIVATE_NETWORKS if self.is_space else LOOPBACK)

    @property
    def selectable_models(self) -> tuple[str, ...] | None:
        """Return the models that users may select, next to that of the host; None for any, also paths."""
        return self.models or ((self.model or EMBEDDED_NAME,) if self.is_public else None)

    @property
    def time_limit_s(self) -> float | None:
        """Return the run timeout in seconds; None for no limit."""
        return PUBLIC_SECONDS if self.max_seconds is None and self.is_public else self.max_seconds


DEFAULTS = HostSettings.model_construct()
"""Settings of a local page without options; the environment is not read."""


def _variable(name: str) -> str:
    return f"PINE_{name.upper()}"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def read_settings(arguments: Sequence[str]) -> HostSettings:
    """Return the settings from options, else from environment variables that are not empty.

    Exit with status 2 and one sentence on stderr for an invalid value, an unknown option or variable.
    """
    variables = [*map(_variable, HostSettings.model_fields), *OTHER_VARIABLES]
    for name in map(str.upper, os.environ):
        if name.startswith("PINE_") and name not in variables:
            (closest,) = get_close_matches(name, variables, n=1, cutoff=0)
            print(f"Unknown variable: got {name}. Remove it, or set {closest}.", file=sys.stderr)
            sys.exit(2)
    try:
        return CliApp.run(HostSettings, cli_args=list(arguments))
    except InputError as error:
        print(f"{error}"[:1].upper() + f"{error}"[1:], file=sys.stderr)
        sys.exit(2)
    except ValidationError as error:
        first = error.errors()[0]
        name, problem = str(first["loc"][0]), first["msg"].removeprefix("Value error, ")
        is_option = _flag(name) in {argument.partition("=")[0] for argument in arguments}
        got = "a login" if name == "auth" else describe(first["input"])
        if first["type"] == "string_pattern_mismatch":
            problem = f"Expected: {HostSettings.model_fields[name].description}"
        source = _flag(name) if is_option else _variable(name)
        print(f"Invalid {source}: got {got}. {problem.rstrip('.')}.", file=sys.stderr)
        sys.exit(2)


def settings_table() -> str:
    """Return the table of all settings in docs/hosting.md, in Markdown."""
    rows = [("variable", "option", "default", "description"), ("---",) * 4]
    for name, field in HostSettings.model_fields.items():
        default = "none" if field.default in (None, "", ()) else str(field.default).lower()
        rows.append((f"`{_variable(name)}`", f"`{_flag(name)}`", default, str(field.description)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(settings_table())
