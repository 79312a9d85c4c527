"""IP addresses and networks of clients, and names of hosts."""

import ipaddress
from collections.abc import Iterable
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

DEFAULT_PORTS = (80, 443)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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


def is_among(name: str, patterns: Iterable[str]) -> bool:
    """Check whether a name matches an entry; "*." matches subdomains, "*" all."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
