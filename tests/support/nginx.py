"""nginx as a proxy before pages, while a block runs."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

MAIN = """
daemon off;
user root;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {settings}
}}
"""


@contextmanager
def started_nginx(folder: Path, port: int, settings: str) -> Iterator[None]:
    """Run nginx in a folder with settings of its http block, which let it listen on a port."""
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, settings=settings))
    with (folder / "errors").open("w") as errors:
        command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
        process = psutil.Popen(command, stderr=errors)
    try:
        while True:
            assert process.poll() is None, (folder / "errors").read_text()
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)
