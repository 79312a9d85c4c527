"""Invalid input for the served page: junk for its functions, addresses, uploads, malformed requests."""

import inspect
import json
import random
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from hypothesis import strategies as st

from pine_engine.methods.table import METHODS
from tools.fuzz import corpus
from tools.fuzz.outcomes import FailureError, Tally
from tools.fuzz.served import MAX_CONCURRENT_EVENTS, Targets, check_message


def _calls(targets: Targets, *, public: bool, count: int, seed: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield calls of public or private functions. The second value is True if the function is queued."""
    generator = random.Random(seed)
    functions = [
        (index, function)
        for index, function in targets.page.blocks.fns.items()
        if function.fn is not None and (function.api_visibility == "public") == public
    ]
    junk = corpus.samples(st.tuples(*[corpus.JUNK] * 3), count, seed)
    for number, (first, second, event_data) in enumerate(junk):
        index, function = functions[number % len(functions)]
        data = [usual_value(block) for block in function.inputs]
        indices = generator.sample(range(len(data)), min(2, len(data)))
        for position, value in zip(indices, (first, second), strict=False):
            data[position] = value
        if generator.random() < 0.05:
            data = [first, second][: generator.randrange(3)]
        target = generator.choice([None, 99_999, *(block for block, _ in function.targets)])
        session = generator.choice([None, "", "another", uuid.UUID(int=number).hex])
        body = {"fn_index": index, "data": data, "event_data": event_data, "trigger_id": target}
        yield body | {"session_hash": session}, bool(function.queue)


def usual_value(block: Any) -> Any:
    """Return the value that the page sends for a widget, shortened to reduce the work of the model."""
    if block.stateful:
        return None
    value = getattr(block, "value", None)
    short = getattr(block, "minimum", None)
    return value[:9] if isinstance(value, str) and type(block).__name__ == "Textbox" else short or value


def _fuzz_functions(targets: Targets, *, public: bool, count: int, seed: int, tally: Tally) -> None:
    def send(call: tuple[dict[str, Any], bool]) -> None:
        body, queued = call
        tally.run(body, lambda: (targets.page.join if queued else targets.page.run)(body))

    with ThreadPoolExecutor(MAX_CONCURRENT_EVENTS) as pool:
        list(pool.map(send, list(_calls(targets, public=public, count=count, seed=seed))))


def fuzz_events(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Send junk as inputs, event data and trigger of all private functions of the page."""
    _fuzz_functions(targets, public=False, count=count, seed=seed, tally=tally)


def _or_junk(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy with mostly values of another one, and junk."""
    return st.one_of(strategy, strategy, strategy, st.lists(corpus.JUNK, max_size=3), corpus.JUNK)


ARGUMENTS = st.fixed_dictionaries(
    {
        "question": corpus.TEXTS,
        "documents": _or_junk(st.lists(corpus.NONEMPTY_TEXTS, max_size=4))
        | st.sampled_from([["a"] * 10_000, ["a" * 600_000]]),
    },
    optional={
        "methods": _or_junk(st.lists(st.sampled_from([*METHODS, "magic"]), max_size=2)),
        "max_new_tokens": _or_junk(st.integers(-2, 12)),
        "instruction": _or_junk(corpus.TEXTS),
        "orders": _or_junk(st.integers(-2, 3) | st.just(["reversed"])),
        "seed": _or_junk(st.integers(-9, 9)),
        "rows": _or_junk(st.lists(corpus.ROWS, max_size=2)),
    },
)


VALID_ARGUMENTS = st.fixed_dictionaries(
    {
        "question": corpus.NONEMPTY_TEXTS,
        "documents": st.lists(corpus.NONEMPTY_TEXTS, min_size=1, max_size=3),
        "methods": st.sampled_from([["pine"], ["vanilla"], ["nia", "pcw"]]),
        "max_new_tokens": st.integers(1, 4),
        "rows": st.lists(corpus.ROWS, min_size=1, max_size=2),
    }
)


def fuzz_calls(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Call the public functions with junk, nearly valid arguments, and hostile texts in valid arguments."""
    _fuzz_functions(targets, public=True, count=count // 2, seed=seed, tally=tally)
    public = [
        (index, one) for index, one in targets.page.blocks.fns.items() if one.api_visibility == "public"
    ]

    def call(numbered: tuple[int, dict[str, Any]]) -> None:
        number, arguments = numbered
        index, function = public[number % len(public)]
        names = inspect.signature(function.fn).parameters
        defaults = [block.value for block in function.inputs]
        data = [arguments.get(name, default) for name, default in zip(names, defaults, strict=True)]
        tally.run(arguments, lambda: targets.page.join({"fn_index": index, "data": data}))

    with ThreadPoolExecutor(MAX_CONCURRENT_EVENTS) as pool:
        arguments = corpus.samples(VALID_ARGUMENTS | ARGUMENTS, count - count // 2, seed)
        list(pool.map(call, list(enumerate(arguments))))


MESSAGES = st.fixed_dictionaries(
    {
        "jsonrpc": st.just("2.0") | corpus.JUNK,
        "id": st.integers() | corpus.JUNK,
        "method": st.sampled_from(["tools/call", "tools/list", "initialize", "ping"]) | corpus.TEXTS,
        "params": st.fixed_dictionaries(
            {"name": st.sampled_from(["compare", "nope\n{}"]), "arguments": VALID_ARGUMENTS | ARGUMENTS}
        )
        | corpus.JUNK,
    }
)
"""Messages of MCP clients."""

ADDRESSES = st.one_of(
    st.tuples(st.sampled_from(["file=", "file/", "proxy=", "custom_component/", "stream/",
                               "call/compare/", "static/"]),
              st.sampled_from([*corpus.PATHS, "..%2f..%2fetc%2fpasswd", str(Path(__file__).resolve()),
                               "assets/style.css", "%00", "a" * 3000])).map("".join),
    st.tuples(st.just("file="), st.text("./\\%2fetcpaswd~", max_size=30)).map("".join),
)  # fmt: skip

EVIL = "evil.example"

FORGED_HEADERS = st.dictionaries(
    st.sampled_from(["Host", "Origin", "X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Proto",
                     "Forwarded", "X-Gradio-Server", "X-Pine-Caller", "Cookie"]),
    st.sampled_from([EVIL, f"https://{EVIL}", f"127.0.0.1.{EVIL}", f"{EVIL}:80, 127.0.0.1", "null", "[",
                     f"for={EVIL};host={EVIL}", "127.0.0.1", "a" * 3000]),
    min_size=1,
)  # fmt: skip
"""Headers that claim another host, origin or client."""

FORGERY_PATHS = ("config", "info", "queue/join", "call/compare", "mcp/")

SECRET = "root:"
"""Text in /etc/passwd and in the source of this module that no response may have."""


def fuzz_requests(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Send addresses of files, malformed bodies, forged headers, MCP messages, and unsafe file names."""
    page = targets.page
    posts = ("queue/join", "run/predict", "call/compare", "call/v2/compare", "call/nope", "component_server",
             "cancel", "reset", "vibe-edit", "process_recording", "run-history/connect",
             "upload")  # fmt: skip

    def get(address: str) -> bool:
        try:
            response = page.http.get(address, follow_redirects=True)
        except (httpx.InvalidURL, httpx.RemoteProtocolError):
            return False  # an address that cannot be sent, or the stream of an unknown call
        if SECRET in response.text:
            raise FailureError("the response has the contents of a file")
        return response.status_code == 200 or check_message(response.text)

    def post(path: str, content: Any) -> bool:
        headers = {"Content-Type": "application/json"}
        response = page.http.post(path, content=json.dumps(content), headers=headers)
        return response.status_code == 200 or check_message(response.text)

    def forge(path: str, forged_headers: dict[str, str]) -> bool:
        response = page.http.post(path, json={"data": []}, headers=forged_headers)
        if response.status_code == 200 and EVIL in response.text:
            raise FailureError("the response has a forged header")
        return response.status_code == 200 or check_message(response.text)

    def send_mcp(content: bytes) -> bool:
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        response = page.http.post("mcp/", content=content, headers=accept)
        return response.status_code in (200, 202) or check_message(response.text)

    def upload(name: str, content: bytes) -> bool:
        response = page.http.post("upload", files={"files": (name, content)})
        if response.status_code != 200:
            return check_message(response.text)
        for path in response.json():
            if not Path(path).resolve().is_relative_to(targets.folder.parent.resolve()):
                raise FailureError(f"an upload went to {path}")
        return True

    names = corpus.TEXTS.map(lambda text: text.encode("utf-8", "replace").decode() or "a")
    messages = corpus.CONTENTS | MESSAGES.map(corpus.as_json)
    requests: st.SearchStrategy[Any] = st.one_of(
        st.tuples(st.just(get), ADDRESSES),
        st.tuples(st.just(post), st.sampled_from(posts), corpus.JUNK),
        st.tuples(st.just(forge), st.sampled_from(FORGERY_PATHS), FORGED_HEADERS),
        st.tuples(st.just(send_mcp), messages),
        st.tuples(st.just(upload), names, st.binary(max_size=50)),
    )
    for send, *arguments in corpus.samples(requests, count, seed):
        tally.run(arguments, partial(send, *arguments))
