"""Reading visitors' files: one upload at a time, in a process that ends with its time, memory or visitor."""

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from pine_engine.errors import InputError, PineError
from viz.page.files.file_button import by_name
from viz.page.files.limited_process import LimitError, Limits, compute_apart
from viz.page.jobs.presence import listener, stop_if_left, visitor
from viz.page.jobs.queue import FairQueue
from viz.page.jobs.run_log import SHUTTING_DOWN, LoggedRun, RunLog
from viz.page.jobs.runner import WAIT_S

Result = TypeVar("Result")
Said = TypeVar("Said")

MOST_WAITING = 8
"""Uploads that may wait for the one that is read."""

LONGEST_SENTENCE = 1_000
"""Characters of what is said of a file; it may quote a line of it, or all names of its columns."""


class FileReader:
    """Reads the files of a page's visitors. runs: those of the page, which log each upload like a run.

    Elsewhere than here no file of a visitor is parsed, but for a saved session, which is small.
    """

    def __init__(self, runs: RunLog, limits: Limits | None = None, most_waiting: int = MOST_WAITING) -> None:
        self._runs, self._limits = runs, limits or Limits()
        self._queue = FairQueue(most_waiting, what="for files to be read")

    def read(
        self,
        function: Callable[..., Result],
        *arguments: Any,
        what: str,
        files: Sequence[Path],
        say: Callable[[str], Said],
    ) -> Generator[Said, None, Result]:
        """Yields say(sentence) while others are before this one; returns what the function of these arguments
        returns, see compute_apart.

        what: as the log calls it. files: those that the function reads.
        Raises InputError with a sentence that names the files as the visitor does, PineError if too many
        wait, or the page is shut down, and Cancelled once the visitor has left.
        """
        with ExitStack() as stack:
            ticket = stack.enter_context(self._queue.join(visitor(), listener()))
            while ahead := ticket.wait(WAIT_S):
                stop_if_left()
                if self._runs.closing:
                    raise PineError(SHUTTING_DOWN)
                yield say(f"Waiting: {ahead} upload{'s are' if ahead != 1 else ' is'} read before yours.")
            run = stack.enter_context(self._runs.watched(self._runs.new(what, ())))
            try:
                return compute_apart(function, *arguments, limits=self._limits, look=lambda: _go_on(run))
            except LimitError as error:
                run.outcome, run.why = _OUTCOMES[error.which], self._sentence(error, files)
                raise InputError(run.why) from error
            except InputError as error:
                sentence = by_name(str(error), files)
                if len(sentence) > LONGEST_SENTENCE:
                    sentence = f"{sentence[:LONGEST_SENTENCE]} ..."
                raise InputError(sentence) from error

    def _sentence(self, error: LimitError, files: Sequence[Path]) -> str:
        named = f"the file {files[0].name}" if len(files) == 1 else f"one of the {len(files)} files"
        limits = self._limits
        memory, text = f"{limits.memory // 1_000_000:,} MB", f"{limits.answer // 1_000_000:,} MB"
        less = "give a part of it, or its text as .txt"
        return {
            "time": f"{named} takes more than {limits.cpu_s:g} s to read; {less}",
            "memory": f"{named} takes more than {memory} of memory to read; {less}",
            "answer": f"{named} holds more than {text} of text; give a part of it",
            "died": f"{named} is damaged, and ended the process that reads files; save it anew",
        }[error.which]


_OUTCOMES = {"time": "timeout", "memory": "out_of_memory", "answer": "rejected", "died": "rejected"}
"""Of a run whose process was ended, as the log says it."""


def without_words(words: Generator[Any, None, Result]) -> Result:
    """What the generator returns, for who cannot be told anything before."""
    while True:
        try:
            next(words)
        except StopIteration as end:
            result: Result = end.value
            return result


def _go_on(run: LoggedRun) -> None:
    """Raises Cancelled once the visitor has left, and PineError if the page is shut down."""
    stop_if_left()
    if why := run.over():
        raise PineError(why)
