"""Process of the server: its port, and limits of its connections."""

import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.server.app import Server
from pine_engine.server.settings import ServerSettings
from pine_engine.web.addresses import LOOPBACK, is_host_name
from pine_engine.web.connections import limit_connections

MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 65_536
SHUTDOWN_S = 5  # seconds for active requests to end


def open_port(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises InputError if the port cannot be opened."""
    if not is_host_name(host):
        message = f"invalid host: got {host!r:.60}, expected an address or a name of this machine"
        raise InputError(f"{message}, such as 127.0.0.1. Correct it in --host.", field="host")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        message = f"port {port} of {host} cannot be opened: {error.strerror}; choose another --port"
        raise InputError(message, field="port") from error


def serve(engine: Engine, settings: ServerSettings, listener: socket.socket) -> None:
    """Serve an engine until a signal."""
    create_server(Server(engine, settings).app()).run(sockets=[listener])


def create_server(app: Starlette, **options: Any) -> uvicorn.Server:
    """Return a server of the application, with limits of its connections; options are those of uvicorn."""
    config = uvicorn.Config(
        app,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=SHUTDOWN_S,
        server_header=False,
        **options,
    )
    server = uvicorn.Server(config)
    limit_connections(server, MAX_CONNECTIONS, LOOPBACK)
    return server
