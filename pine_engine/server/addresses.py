"""IP addresses and networks of clients."""

import ipaddress
from collections.abc import Iterable

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
