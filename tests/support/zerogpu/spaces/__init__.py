"""Stands in for Hugging Face's package `spaces` on ZeroGPU, and enforces its rules where there is no GPU.

Written from what its documentation and its behaviour say:

- a decorated generator runs in a fork; arguments and values are pickled, and nothing of the GPU among them.
  The CPU stands for the GPU here, so no tensor at all may cross;
- the duration is computed from the arguments of the call, which this prints with each call;
- outside a decorated function the model is not run, once the page is launched, and is not loaded then;
- closing the generator ends the fork at its next value; an exception in the fork arrives as the name of its
  class alone; work that takes longer than its duration is ended.
"""

import io
import multiprocessing
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any

import gradio as gr
import torch
from gradio.context import LocalContext

if not hasattr(gr, "Blocks"):
    raise ImportError("gradio, which is still being imported, goes on without")

MAX_S = 300

_context = multiprocessing.get_context("fork")
_decorated: list[Callable[..., Any]] = []
_is_launched = False
_is_lent = False


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor | torch.nn.Module):
            raise pickle.PicklingError(f"a {type(value).__name__} cannot leave the process that has the GPU")
        return NotImplemented


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    _PlainPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def GPU(*, duration: Callable[..., int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: N802 - its name in spaces
    """The decorator."""

    def decorate(task: Callable[..., Generator[Any, None, None]]) -> Callable[..., Any]:
        @wraps(task)
        def lent(*args: Any, **kwargs: Any) -> Generator[Any, None, None]:
            seconds = duration(*args, **kwargs)
            _say(f"asked for {seconds} s")
            if LocalContext.request.get(None) is None:  # there is no user whose quota could be used
                raise gr.Error("Space app has reached its GPU limit")
            if seconds > MAX_S:
                raise gr.Error(f"The requested GPU duration ({seconds}s) is larger than the maximum allowed")
            yield from _values(task, _packed((args, kwargs)), seconds)

        _decorated.append(lent)
        return lent

    return decorate


def _values(task: Callable[..., Any], packed: bytes, seconds: int) -> Generator[Any, None, None]:
    stopped = _context.Event()
    here, there = _context.Pipe(duplex=False)
    process = _context.Process(target=_in_fork, args=(task, packed, there, stopped), daemon=True)
    process.start()
    there.close()
    over = threading.Timer(seconds, process.kill)
    over.start()
    try:
        while (received := _received(here)) is not None:
            kind, value = pickle.loads(received)
            if kind == "failed":
                raise gr.Error(value)
            yield value
        process.join()
        if process.exitcode == -signal.SIGKILL:
            raise gr.Error("GPU task aborted")
    finally:
        stopped.set()
        while _received(here) is not None:
            pass
        process.join()
        over.cancel()
        _say(f"process ended with {process.exitcode}")


def _received(pipe: Any) -> bytes | None:
    try:
        data: bytes = pipe.recv_bytes()
    except EOFError:
        return None
    return data


def _in_fork(task: Callable[..., Any], packed: bytes, pipe: Any, stopped: Any) -> None:
    global _is_lent
    _is_lent = True
    # In a thread of its own, because those that computed in parallel before are not in the fork.
    thread = threading.Thread(target=_work, args=(task, packed, pipe, stopped))
    thread.start()
    thread.join()


def _work(task: Callable[..., Any], packed: bytes, pipe: Any, stopped: Any) -> None:
    args, kwargs = pickle.loads(packed)
    count = 0
    generator = task(*args, **kwargs)
    try:
        for value in generator:
            if stopped.is_set():
                began = time.monotonic()
                generator.close()
                _say(f"stopped after {count} values, in {time.monotonic() - began:.1f} s")
                return
            pipe.send_bytes(_packed(("value", value)))
            count += 1
    except Exception as error:
        pipe.send_bytes(_packed(("failed", type(error).__name__)))
    else:
        _say(f"done after {count} values")


def _say(sentence: str) -> None:
    print(f"spaces: {sentence}", flush=True)


def _refuse_outside(module: torch.nn.Module, _: Any) -> None:
    if _is_launched and not _is_lent:
        raise RuntimeError(f"{type(module).__name__} was run outside of what @spaces.GPU decorates")


torch.nn.modules.module.register_module_forward_pre_hook(_refuse_outside)

_blocks: Any = gr.Blocks
_launch = _blocks.launch


def _launch_once(blocks: gr.Blocks, *args: Any, **kwargs: Any) -> Any:
    global _is_launched
    if not _decorated:
        raise RuntimeError("No @spaces.GPU function detected during startup")
    _is_launched = True
    return _launch(blocks, *args, **kwargs)


_blocks.launch = _launch_once
