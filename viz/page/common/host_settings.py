"""Settings of the host: model, address and limits."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from pine_engine.models.dtypes import RequestedDtype
from viz.page.common.bounds import MAX_DOCUMENTS, MAX_ROWS

PREFIX = "PINE_"
"""Prefix of environment variables: PINE_MAX_ROWS is `max_rows`, and so is --max-rows."""

MAX_ANSWER_TOKENS = 500
"""Upper limit of new tokens of an answer."""

MAX_DOCUMENT_ORDERS = 120
"""Upper limit of document orders: all orders of five documents."""

PUBLIC_SECONDS = 300
"""Default run timeout of a public page, in seconds."""

LOOPBACK = ("127.0.0.0/8", "::1")
"""Addresses of a proxy on the same machine."""

PRIVATE_NETWORKS = (*LOOPBACK, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Networks of the proxies of a Space."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Addresses of this machine."""


def _listed(value: Any) -> Any:
    """Split a text at commas; return any other value unchanged."""
    if isinstance(value, str):
        return tuple(filter(None, (part.strip() for part in value.split(","))))
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class HostSettings(BaseModel):
    """Settings of the host. Their descriptions are in `--help` and in docs/hosting.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    root_path: str = Field(default="", description="Path of the page behind a reverse proxy, such as /pine.")
    allowed_hosts: Names = Field(
        default=(),
        description="Host names of the page and origins that may call it, separated by commas; * allows any. "
        "Default: localhost for a local page; every name for a public one, without other origins.",
    )
    """See serving/trusted_hosts.py."""

    trusted_proxies: Names = Field(
        default=(),
        description="Addresses or networks of reverse proxies whose X-Forwarded-* headers are accepted, "
        "separated by commas. Default: loopback; on a Space its proxies.",
    )
    """See proxies."""

    frame_ancestors: str = Field(
        default="*",
        description="Sites that may embed the page, separated by spaces: * for any, 'self', 'none', or such "
        "as https://school.example.",
    )
    auth: Annotated[str, Field(pattern=r"^$|^[^:\s]+:.+$")] = Field(
        default="", description="Login as name:password. If empty, authentication is disabled.", repr=False
    )
    models: Names = Field(
        default=(),
        description="Models that visitors can choose, separated by commas. Default: any for a local page; "
        "only the host's model for a public one.",
    )
    """See allowed_models."""

    read_only: bool = Field(
        default=False,
        description="Visitors run the included examples only.",
    )
    max_documents: int = Field(
        default=MAX_DOCUMENTS,
        ge=2,
        le=MAX_DOCUMENTS,
        description="Documents per request. Rows of an evaluation are limited by their tokens instead.",
    )
    max_prompt_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Tokens per prompt. Default: the context length of the model."
    )
    max_new_tokens: int = Field(
        default=MAX_ANSWER_TOKENS, ge=16, le=MAX_ANSWER_TOKENS, description="Tokens per answer."
    )
    max_orders: int = Field(
        default=MAX_DOCUMENT_ORDERS,
        ge=3,
        le=MAX_DOCUMENT_ORDERS,
        description="Document orders per request.",
    )
    max_rows: int = Field(default=MAX_ROWS, ge=2, le=MAX_ROWS, description="Rows per evaluation.")
    max_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Seconds per run, without the time in the queue. Default: unlimited for a local page, "
        f"{PUBLIC_SECONDS} for a public one.",
    )
    """See time_limit."""

    queue_size: int = Field(default=32, ge=1, description="Queued runs. Scripts can use half of the queue.")
    max_runs_per_client: int = Field(
        default=4,
        ge=1,
        description="Queued and active runs per open page, or per address for scripts.",
    )
    max_requests_per_minute: int = Field(
        default=1200,
        ge=60,
        description="Requests per address and minute, also in one burst: page events, API calls, tool calls "
        "and logins.",
    )
    """See serving/rate_limits.py."""

    max_connections: int = Field(
        default=800, ge=20, description="Concurrent connections. An address can use a quarter of them."
    )
    max_disk_mb: Annotated[float, Field(gt=0)] = Field(
        default=1000,
        description="Megabytes of disk for uploads and saved files of all visitors.",
    )
    shutdown_timeout: float = Field(
        default=5, ge=0, description="Seconds that active runs have to finish at shutdown."
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [name for name in names if "/" in name or re.fullmatch(r"[^:]+:\d+", name)]:
            raise ValueError(f"it should be names without scheme, port and path, not {wrong[0]!r}")
        return names

    @field_validator("frame_ancestors")
    @classmethod
    def _are_sites(cls, sites: str) -> str:
        if not re.fullmatch(r"[^;,\r\n]+", sites):
            raise ValueError("it should be sites separated by blanks")
        return sites

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for network in networks:
            try:
                ip_network(network, strict=False)
            except ValueError as error:
                raise ValueError(
                    "it should be addresses such as 10.0.0.1, or networks such as 10.0.0.0/8"
                ) from error
        return networks


DEFAULTS = HostSettings()
"""Settings of a local page without options."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """Return the option of a setting."""
    return "--" + name.replace("_", "-")


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str], *, description: str | None = None
) -> HostSettings:
    """Return the settings from options, else from environment variables that are not empty.

    Exit with status 2 and one sentence on stderr for an invalid value or an unknown option.
    """
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    for name, field in HostSettings.model_fields.items():
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        parser.add_argument(
            flag(name),
            dest=name,
            metavar=name.upper(),
            help=f"{field.description} ({variable(name)}{_shown_default(name)})",
            **switch,
        )
    from_options = {
        name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None
    }
    from_environment = {
        name: value for name in HostSettings.model_fields if (value := environment.get(variable(name)))
    }
    try:
        return HostSettings.model_validate(from_environment | from_options)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        source = flag(name) if name in from_options else variable(name)
        expected = re.sub("^Input should|^Value error, it should", "it should", first["msg"])
        problem = "is not name:password" if name == "auth" else f"is {first['input']!r}; {expected}"
        print(f"{source} {problem}.", file=sys.stderr)
        sys.exit(2)


def is_public(settings: HostSettings, environment: Mapping[str, str]) -> bool:
    """Check whether other machines can reach the page: by its address, a proxy, a tunnel or a Space."""
    address = settings.host or environment.get("GRADIO_SERVER_NAME") or "localhost"
    return (
        address not in LOCAL_NAMES
        or not set(settings.allowed_hosts) <= set(LOCAL_NAMES)
        or bool(settings.root_path or environment.get("GRADIO_ROOT_PATH"))
        or environment.get("GRADIO_SHARE", "").lower() == "true"
        or is_space(environment)
    )


def is_space(environment: Mapping[str, str]) -> bool:
    """Check whether this is a Hugging Face Space."""
    return "SPACE_ID" in environment


def proxies(settings: HostSettings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the proxies whose X-Forwarded-* headers are trusted: named ones, and those of a Space."""
    return settings.trusted_proxies or (PRIVATE_NETWORKS if is_space(environment) else LOOPBACK)


def allowed_models(settings: HostSettings, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the models that users may select besides that of the host; None for any, also local paths."""
    return settings.models if settings.models or is_public(settings, environment) else None


def time_limit(settings: HostSettings, environment: Mapping[str, str]) -> float | None:
    """Return the run timeout in seconds; None for no limit."""
    if settings.max_seconds is None and is_public(settings, environment):
        return PUBLIC_SECONDS
    return settings.max_seconds


def settings_table() -> str:
    """Return the table of all settings in Markdown.

    `python -m viz.page.common.host_settings docs/hosting.md` writes it between the markers there.
    """
    rows = [("variable", "option", "default", "description"), ("---",) * 4]
    rows += [
        (f"`{variable(name)}`", f"`{flag(name)}`", _default(name) or "none", str(field.description))
        for name, field in HostSettings.model_fields.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _default(name: str) -> str:
    default = HostSettings.model_fields[name].default
    if isinstance(default, tuple):
        return ",".join(default)
    return "" if default is None else f"{str(default).lower() if default is False else default}"


def _shown_default(name: str) -> str:
    default = _default(name)
    return f"; {default}" if default else ""


BEGIN = "<!-- settings: written by `python -m viz.page.common.host_settings docs/hosting.md` -->"
END = "<!-- end of settings -->"


def write_into(path: Path) -> None:
    """Write the table between the two markers in a file."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{settings_table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write_into(Path(sys.argv[1]))
