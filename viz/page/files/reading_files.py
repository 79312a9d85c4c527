"""Parse files of users: one upload at a time, in a subprocess with limits."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pine_engine.errors import InputError, PineError
from pine_engine.rows.files import KINDS, PARQUET
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import SHUTTING_DOWN, End, EndReason, RunState
from pine_engine.scheduling.runs import WAIT_S, Caller, Runs
from viz.page.files.limited_process import LimitError, Limits, run_in_subprocess
from viz.page.jobs.connection_tracker import current_caller

Result = TypeVar("Result")
Update = TypeVar("Update")

ROW_ENDINGS = (*(kind for kind in KINDS if kind != PARQUET), ".gz")
"""Endings of files with rows; Parquet needs a package that hosts may not have."""

MAX_WAITING_UPLOADS = 8  # maximum number of waiting uploads
MAX_MESSAGE_CHARACTERS = 1_000  # maximum characters of a message, which may quote a line or all column names


class FileReader:
    """Parser of uploaded files; each upload is logged like a run, and not counted as one.

    Only saved sessions, which are small, are parsed elsewhere.
    """

    def __init__(self, runs: Runs, limits: Limits | None = None) -> None:
        self._runs, self._limits = runs, limits or Limits()
        self._queue = FairQueue(MAX_WAITING_UPLOADS, what="for uploads")

    def read(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        what: str,
        files: Sequence[Path],
        say: Callable[[str], Update],
    ) -> Generator[Update, None, Result]:
        """Yield say(sentence) while other uploads are ahead; return the result of the function.

        Raises InputError that names the files, PineError for a full queue or a shutdown, and Cancelled after
        a disconnect.
        """
        with ExitStack() as stack:
            caller = current_caller()
            ticket = stack.enter_context(self._queue.join(caller.client, caller.is_listening))
            while ahead := ticket.wait(WAIT_S):
                caller.check()
                if self._runs.is_closing:
                    raise PineError(SHUTTING_DOWN)
                yield say(f"Queued: {ahead} upload{'s' if ahead != 1 else ''} ahead of you.")
            run = self._runs.new(what, is_upload=True)
            stack.enter_context(self._runs.recorded(run))
            try:
                look = partial(_go_on, run, caller)
                return run_in_subprocess(function, *arguments, limits=self._limits, look=look)
            except LimitError as error:
                run.end = self._end(error, files)
                raise InputError(run.end.sentence) from error
            except InputError as error:
                sentence = by_name(str(error), files)
                if len(sentence) > MAX_MESSAGE_CHARACTERS:
                    sentence = f"{sentence[:MAX_MESSAGE_CHARACTERS]} ..."
                raise InputError(sentence) from error

    def _end(self, error: LimitError, files: Sequence[Path]) -> End:
        """Return the end of an upload beyond a limit."""
        named = files[0].name if len(files) == 1 else f"one of {len(files)} files"
        limits = self._limits
        memory, text = f"{limits.memory // 1_000_000:,} MB", f"{limits.answer // 1_000_000:,} MB"
        less = "Upload a smaller file or its text as .txt."
        ends: dict[str, tuple[EndReason, str]] = {
            "time": ("timeout", f"Timeout: parsing {named} took more than {limits.cpu_s:g} s. {less}"),
            "memory": ("out_of_memory", f"Out of memory: parsing {named} needs more than {memory}. {less}"),
            "answer": ("rejected", f"Too much text: {named} has more than {text}. Upload a smaller file."),
            "died": ("rejected", f"Parsing {named} failed: it is corrupted. Export it again."),
        }
        return End(*ends[str(error)])


def encoding_sentence(encodings: Iterable[str]) -> str:
    """Return a sentence on the encodings that are a guess, "" for none."""
    names = ", ".join(dict.fromkeys(filter(None, encodings)))
    return f" Not UTF-8: read as {names}, which is a guess." if names else ""


def without_progress(words: Generator[Any, None, Result]) -> Result:
    """Return the result of the generator, without its progress."""
    while True:
        try:
            next(words)
        except StopIteration as end:
            result: Result = end.value
            return result


def _go_on(run: RunState, caller: Caller) -> None:
    """Raise Cancelled after a disconnect, and PineError during a shutdown."""
    caller.check()
    if run.must_end() and run.end:
        raise PineError(run.end.sentence)


def by_name(sentence: str, paths: Sequence[Path]) -> str:
    """Replace paths of uploaded files in the sentence by their names."""
    for path in paths:
        # A sentence begins with a capital, which a name may not have.
        if sentence.startswith(str(path)):
            sentence = f"File {sentence}"
        sentence = sentence.replace(str(path), path.name)
    return sentence
