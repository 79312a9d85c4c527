"""What the host of a page decides: what runs, where, and how much of it one visitor may ask for."""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from pine_engine.models.dtypes import AskedDtype
from viz.page.common.bounds import MAX_DOCUMENTS, MOST_ROWS

PREFIX = "PINE_"
"""Of the environment variable of a setting: PINE_MOST_ROWS is `most_rows`, and so is --most-rows."""

LONGEST_ANSWER = 500
"""Tokens that an answer may have at most, on any page."""

MOST_ARRANGEMENTS = 120
"""Orders of one question that are tried at most, on any page: all of five documents."""

PUBLIC_SECONDS = 300
"""Longest run on a page that others can reach, if the host has said nothing."""

LOOPBACK = ("127.0.0.0/8", "::1")
"""Addresses of a proxy on the same machine."""

PRIVATE_NETWORKS = (*LOOPBACK, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Networks of the proxies of a Space."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Under which a machine reaches itself."""


def _listed(value: Any) -> Any:
    """The parts between the commas of a text; any other value as it is."""
    if isinstance(value, str):
        return tuple(filter(None, (part.strip() for part in value.split(","))))
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class HostSettings(BaseModel):
    """One page's settings; the description of each is what its flag and the table in docs/hosting.md say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = Field(
        default=None, description="hub id, folder or GGUF file; the embedded model if not given"
    )
    dtype: AskedDtype = Field(
        default="auto",
        description="dtype of the model: float32, bfloat16, float16, 4bit (float32 with 4-bit weights for "
        "decode), or auto: the dtype of the stored weights if the processor has instructions for it, else "
        "float32; bfloat16 on a GPU",
    )
    device: str = Field(default="cpu", description="cpu, cuda, ...")
    host: str | None = Field(default=None, description="address to serve on; this machine only if not given")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None, description="port to serve on; 7860 or the next free one"
    )
    root_path: str = Field(default="", description="path under which a proxy serves the page, such as /pine")
    trusted_hosts: Names = Field(
        default=(),
        description="names under which visitors reach the page, and sites whose own pages may call it, "
        "separated by commas, * for any; if empty, localhost alone on a page that only this machine reaches, "
        "and on any other every name, called by its own pages",
    )
    """See serving/trusted_hosts.py."""

    trusted_proxies: Names = Field(
        default=(),
        description="addresses or networks of reverse proxies whose X-Forwarded-* headers are trusted, "
        "separated by commas; if empty, those on the same machine, and on a Space its own",
    )
    """See proxies."""

    frame_ancestors: str = Field(
        default="*",
        description="sites that may show the page in a frame, separated by blanks: * for any, 'self' for its "
        "own, 'none', or such as https://school.example",
    )
    auth: Annotated[str, Field(pattern=r"^$|^[^:\s]+:.+$")] = Field(
        default="", description="name:password that visitors are asked for; nobody is if empty", repr=False
    )
    models: Names = Field(
        default=(),
        description="models that visitors may choose, separated by commas; if empty, any on a page that only "
        "this machine reaches, and the host's alone on any other",
    )
    """See allowed_models."""

    read_only: bool = Field(
        default=False,
        description="visitors run the examples that come with the page, and enter nothing of their own",
    )
    most_documents: int = Field(
        default=MAX_DOCUMENTS,
        ge=2,
        le=MAX_DOCUMENTS,
        description="documents of one question; rows of a measurement are bounded by their tokens",
    )
    most_prompt_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="tokens of one prompt; what the model can read if not given"
    )
    most_new_tokens: int = Field(
        default=LONGEST_ANSWER, ge=16, le=LONGEST_ANSWER, description="tokens of one answer"
    )
    most_orders: int = Field(
        default=MOST_ARRANGEMENTS,
        ge=3,
        le=MOST_ARRANGEMENTS,
        description="orders in which one question is answered",
    )
    most_rows: int = Field(default=MOST_ROWS, ge=2, le=MOST_ROWS, description="rows of one measurement")
    most_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds of one run, without the wait for it; if not given, as long as it takes on a "
        f"page that only this machine reaches, and {PUBLIC_SECONDS} on any other",
    )
    """See time_limit."""

    queue_size: int = Field(
        default=32, ge=1, description="runs that may wait for the model; scripts have half of the places"
    )
    queue_share: int = Field(
        default=4,
        ge=1,
        description="runs that may wait or go on for one open page, or for all scripts of one address",
    )
    max_requests_per_minute: int = Field(
        default=1200,
        ge=60,
        description="requests of one address in a minute, which may all come at once: events of the page, "
        "calls, tool calls and logins",
    )
    """See serving/rate_limits.py."""

    most_connections: int = Field(
        default=800, ge=20, description="connections at once; one address may have a quarter of them"
    )
    most_disk_mb: Annotated[float, Field(gt=0)] = Field(
        default=1000,
        description="megabytes of disk for what all visitors together upload and are handed",
    )
    shutdown_seconds: float = Field(
        default=5, ge=0, description="seconds that running work may still take when the page is shut down"
    )

    @field_validator("trusted_hosts")
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
"""Those of a page that nobody has set."""


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str], *, description: str | None = None
) -> HostSettings:
    """The settings from flags, and from variables where there is no flag; an empty variable is none.

    Ends the process with status 2 and a sentence on stderr for a value that cannot be, or an unknown flag.
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
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    set_outside = {
        name: value for name in HostSettings.model_fields if (value := environment.get(variable(name)))
    }
    try:
        return HostSettings.model_validate(set_outside | given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        source = flag(name) if name in given else variable(name)
        expected = re.sub("^Input should|^Value error, it should", "it should", first["msg"])
        told = "is not name:password" if name == "auth" else f"is {first['input']!r}; {expected}"
        print(f"{source} {told}.", file=sys.stderr)
        sys.exit(2)


def is_public(settings: HostSettings, environment: Mapping[str, str]) -> bool:
    """Whether others than this machine may reach the page: by its address, a proxy, a tunnel, or a Space."""
    address = settings.host or environment.get("GRADIO_SERVER_NAME") or "localhost"
    return (
        address not in LOCAL_NAMES
        or not set(settings.trusted_hosts) <= set(LOCAL_NAMES)
        or bool(settings.root_path or environment.get("GRADIO_ROOT_PATH"))
        or environment.get("GRADIO_SHARE", "").lower() == "true"
        or is_space(environment)
    )


def is_space(environment: Mapping[str, str]) -> bool:
    """Whether this is a Space of Hugging Face."""
    return "SPACE_ID" in environment


def proxies(settings: HostSettings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses and networks of the proxies whose X-Forwarded-* headers are trusted.

    A private network is trusted only if it is named, or on a Space, where only its proxies reach the page:
    any client in it could otherwise pass for several.
    """
    return settings.trusted_proxies or (PRIVATE_NETWORKS if is_space(environment) else LOOPBACK)


def allowed_models(settings: HostSettings, environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The models that visitors may choose beside the host's; None for any, which may be a path on the disk.

    Any only where nobody but the host can reach the page, unless they are listed.
    """
    return settings.models if settings.models or is_public(settings, environment) else None


def time_limit(settings: HostSettings, environment: Mapping[str, str]) -> float | None:
    """Seconds that one run may take; None for as long as it takes."""
    if settings.most_seconds is None and is_public(settings, environment):
        return PUBLIC_SECONDS
    return settings.most_seconds


def settings_table() -> str:
    """The table of all settings in Markdown.

    `python -m viz.page.common.host_settings docs/hosting.md` writes it between the markers there.
    """
    rows = [("variable", "flag", "default", "what it is"), ("---",) * 4]
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
    """Puts the table between its two markers in a file."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n\n{settings_table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write_into(Path(sys.argv[1]))
