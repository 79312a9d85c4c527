"""Bad input for the served page: junk for its functions, addresses, uploads, bodies that are no call."""

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
from tools.fuzz.served import EVENTS_AT_ONCE, Doors, check_sentence


def _called(doors: Doors, name: str, count: int, seed: int) -> Iterator[tuple[dict[str, Any], bool]]:
    """Calls of functions, each with whether it waits for the model; name: "calls" for the public ones."""
    generator = random.Random(seed)
    functions = [
        (index, function)
        for index, function in doors.page.blocks.fns.items()
        if function.fn is not None and (function.api_visibility == "public") == (name == "calls")
    ]
    junk = corpus.draws(st.tuples(*[corpus.JUNK] * 3), count, seed)
    for number, (first, second, event_data) in enumerate(junk):
        index, function = functions[number % len(functions)]
        data = [usual_value(block) for block in function.inputs]
        places = range(len(data))
        for place, value in zip(generator.sample(places, min(2, len(data))), (first, second), strict=False):
            data[place] = value
        if generator.random() < 0.05:
            data = [first, second][: generator.randrange(3)]
        target = generator.choice([None, 99_999, *(block for block, _ in function.targets)])
        session = generator.choice([None, "", "another", uuid.UUID(int=number).hex])
        body = {"fn_index": index, "data": data, "event_data": event_data, "trigger_id": target}
        yield body | {"session_hash": session}, bool(function.queue)


def usual_value(block: Any) -> Any:
    """What the page sends for a widget, cut down so that the model has little to do."""
    if block.stateful:
        return None
    value = getattr(block, "value", None)
    short = getattr(block, "minimum", None)
    return value[:9] if isinstance(value, str) and type(block).__name__ == "Textbox" else short or value


def _throw_at_functions(doors: Doors, name: str, count: int, seed: int, tally: Tally) -> None:
    def send(one: tuple[dict[str, Any], bool]) -> None:
        body, queued = one
        tally.judge(body, lambda: (doors.page.join if queued else doors.page.run)(body))

    with ThreadPoolExecutor(EVENTS_AT_ONCE) as pool:
        for _ in pool.map(send, list(_called(doors, name, count, seed))):
            pass


def throw_events(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Junk for the inputs, the event data and the trigger of every private function of the page."""
    _throw_at_functions(doors, "events", count, seed, tally)


def _or_junk(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly values of the strategy."""
    return st.one_of(strategy, strategy, strategy, st.lists(corpus.JUNK, max_size=3), corpus.JUNK)


ARGUMENTS = st.fixed_dictionaries(
    {
        "question": corpus.TEXTS,
        "documents": _or_junk(st.lists(corpus.SAID, max_size=4))
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


RIGHT = st.fixed_dictionaries(
    {
        "question": corpus.SAID,
        "documents": st.lists(corpus.SAID, min_size=1, max_size=3),
        "methods": st.sampled_from([["pine"], ["vanilla"], ["nia", "pcw"]]),
        "max_new_tokens": st.integers(1, 4),
        "rows": st.lists(corpus.ROWS, min_size=1, max_size=2),
    }
)


def throw_calls(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """The public calls: with junk, with arguments that are nearly right, and with hostile texts alone."""
    _throw_at_functions(doors, "calls", count // 2, seed, tally)
    public = [(index, one) for index, one in doors.page.blocks.fns.items() if one.api_visibility == "public"]

    def call(numbered: tuple[int, dict[str, Any]]) -> None:
        number, given = numbered
        index, function = public[number % len(public)]
        names = inspect.signature(function.fn).parameters
        defaults = [block.value for block in function.inputs]
        data = [given.get(name, default) for name, default in zip(names, defaults, strict=True)]
        tally.judge(given, lambda: doors.page.join({"fn_index": index, "data": data}))

    with ThreadPoolExecutor(EVENTS_AT_ONCE) as pool:
        for _ in pool.map(call, list(enumerate(corpus.draws(RIGHT | ARGUMENTS, count - count // 2, seed)))):
            pass


MESSAGES = st.fixed_dictionaries(
    {
        "jsonrpc": st.just("2.0") | corpus.JUNK,
        "id": st.integers() | corpus.JUNK,
        "method": st.sampled_from(["tools/call", "tools/list", "initialize", "ping"]) | corpus.TEXTS,
        "params": st.fixed_dictionaries(
            {"name": st.sampled_from(["compare", "nope\n{}"]), "arguments": RIGHT | ARGUMENTS}
        )
        | corpus.JUNK,
    }
)
"""Of assistants (MCP)."""

ADDRESSES = st.one_of(
    st.tuples(st.sampled_from(["file=", "file/", "proxy=", "custom_component/", "stream/",
                               "call/compare/", "static/"]),
              st.sampled_from([*corpus.PATHS, "..%2f..%2fetc%2fpasswd", str(Path(__file__).resolve()),
                               "assets/style.css", "%00", "a" * 3000])).map("".join),
    st.tuples(st.just("file="), st.text("./\\%2fetcpaswd~", max_size=30)).map("".join),
)  # fmt: skip

EVIL = "evil.example"

CLAIMS = st.dictionaries(
    st.sampled_from(["Host", "Origin", "X-Forwarded-Host", "X-Forwarded-For", "X-Forwarded-Proto",
                     "Forwarded", "X-Gradio-Server", "X-Pine-Caller", "Cookie"]),
    st.sampled_from([EVIL, f"https://{EVIL}", f"127.0.0.1.{EVIL}", f"{EVIL}:80, 127.0.0.1", "null", "[",
                     f"for={EVIL};host={EVIL}", "127.0.0.1", "a" * 3000]),
    min_size=1,
)  # fmt: skip
"""Headers with which somebody passes for somebody else."""

CLAIMED = ("config", "info", "queue/join", "call/compare", "mcp/")

SECRET = "root:"
"""What /etc/passwd holds, and Python's source of this module, and no answer may."""


def throw_requests(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Addresses of files, false claims, uploads with names that lead elsewhere, bodies that are no call."""
    page = doors.page
    posts = ("queue/join", "run/predict", "call/compare", "call/v2/compare", "call/nope", "component_server",
             "cancel", "reset", "vibe-edit", "process_recording", "run-history/connect",
             "upload")  # fmt: skip

    def get(address: str) -> bool:
        try:
            response = page.http.get(address, follow_redirects=True)
        except (httpx.InvalidURL, httpx.RemoteProtocolError):
            return False  # no such address can be sent; or the stream of a call that is not there ends
        if SECRET in response.text:
            raise FailureError("a file was handed out")
        return response.status_code == 200 or check_sentence(response.text)

    def post(path: str, content: Any) -> bool:
        headers = {"Content-Type": "application/json"}
        response = page.http.post(path, content=json.dumps(content), headers=headers)
        return response.status_code == 200 or check_sentence(response.text)

    def claim(path: str, claims: dict[str, str]) -> bool:
        response = page.http.post(path, json={"data": []}, headers=claims)
        if response.status_code == 200 and EVIL in response.text:
            raise FailureError("a claim was believed")
        return response.status_code == 200 or check_sentence(response.text)

    def assistant(content: bytes) -> bool:
        accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        response = page.http.post("mcp/", content=content, headers=accept)
        return response.status_code in (200, 202) or check_sentence(response.text)

    def upload(name: str, content: bytes) -> bool:
        response = page.http.post("upload", files={"files": (name, content)})
        if response.status_code != 200:
            return check_sentence(response.text)
        for path in response.json():
            if not Path(path).resolve().is_relative_to(doors.folder.parent.resolve()):
                raise FailureError(f"an upload went to {path}")
        return True

    kinds = st.one_of(
        ADDRESSES.map(lambda address: ("get", address)),
        st.tuples(st.sampled_from(posts), corpus.JUNK).map(lambda pair: ("post", pair)),
        st.tuples(st.sampled_from(CLAIMED), CLAIMS).map(lambda pair: ("claim", pair)),
        (corpus.CONTENTS | MESSAGES.map(corpus.as_json)).map(lambda content: ("assistant", content)),
        st.tuples(
            corpus.TEXTS.map(lambda text: text.encode("utf-8", "replace").decode() or "a"),
            st.binary(max_size=50),
        ).map(lambda pair: ("upload", pair)),
    )  # fmt: skip
    for how, what in corpus.draws(kinds, count, seed):
        match how:
            case "get":
                tally.judge(what, partial(get, what))
            case "post":
                tally.judge(what, partial(post, *what))
            case "claim":
                tally.judge(what, partial(claim, *what))
            case "assistant":
                tally.judge(what, partial(assistant, what))
            case _:
                tally.judge(what, partial(upload, *what))
