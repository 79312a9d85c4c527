"""IP addresses: which are in which network, and which are one sender's."""

import ipaddress
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks_of(names: Iterable[str]) -> tuple[Network, ...]:
    """Addresses and networks, as the host's settings name them."""
    return tuple(ipaddress.ip_network(name, strict=False) for name in names)


def is_in(host: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name, as tests have it
        return False
    return any(address in network for network in networks)


def sender_of(host: str) -> str:
    """What stands for one sender: an address, of IPv6 the network, as everybody has 2**64 addresses there."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((host, 64), strict=False))
