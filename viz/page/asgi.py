"""The words of ASGI, in which the server and what stands before gradio speak."""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def without_headers(scope: Scope, *names: bytes) -> Scope:
    """The request without these headers, which are given in lower case."""
    return scope | {"headers": [(name, value) for name, value in scope["headers"] if name not in names]}


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
