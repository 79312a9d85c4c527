"""Addresses, host names and origins of requests."""

import ipaddress
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

DEFAULT_PORTS = (80, 443)
DEFAULT_PORT_OF = {"http": 80, "https": 443}

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")  # names of this machine

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: tuple[Network, ...] = (ipaddress.IPv4Network("127.0.0.0/8"), ipaddress.IPv6Network("::1"))
"""Addresses of a reverse proxy on this machine."""


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Check whether an address is in one of the networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name, as tests have it
        return False
    return any(address in network for network in networks)


def sender_of(host: str) -> str:
    """Return the key of a client: its address, for IPv6 the network, because a client has 2**64 addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((host, 64), strict=False))


def split_netloc(netloc: str) -> tuple[str, int | None]:
    """Return name and port of `name:port`, ("", None) if it is invalid.

    The name is in lower case, without brackets of IPv6. The port is None for 80 and 443.
    """
    try:
        parts = urlsplit(f"//{netloc}")
        return parts.hostname or "", None if parts.port in DEFAULT_PORTS else parts.port
    except ValueError:
        return "", None


_LABEL = r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?", re.IGNORECASE)


def is_host_name(name: str) -> bool:
    """Check whether requests can name a host so: by an address without brackets, or by a name in ASCII."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        is_number = name.rstrip(".").rpartition(".")[2].isdecimal()  # such as 300.1.1.1, which is no address
        return bool(_HOST_NAME.fullmatch(name)) and not is_number
    return True


def is_host_pattern(pattern: str) -> bool:
    """Check whether `is_among` can find a host in a pattern."""
    return pattern == "*" or is_host_name(pattern.replace("*", "x"))


def is_origin(origin: str) -> bool:
    """Check whether browsers send an origin so: scheme, host, and the port unless it is the default."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    netloc = f"[{host}]" if ":" in host else host
    netloc += "" if port is None else f":{port}"
    is_default = DEFAULT_PORT_OF.get(parts.scheme) == port is not None
    return origin == f"{parts.scheme}://{netloc}" and is_host_name(host) and not is_default


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Check whether a name matches an entry; "*." matches subdomains, "*" all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
