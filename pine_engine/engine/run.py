"""One run: prefill of the prompt under every method, then all answers in one batch."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from pine_engine.attention.recorder import TraceRecorder
from pine_engine.engine import passes
from pine_engine.engine.events import PrefillDone, RunFinished, RunResult
from pine_engine.engine.generation import ActiveGeneration, decode_answers, synchronize
from pine_engine.engine.model_worker import NEVER, Emit, layer_progress_callback
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.engine.request_arguments import (
    PromptLike,
    RunOptions,
    RunSettings,
    check_options,
    split_options,
    tokenize_request,
)
from pine_engine.methods.table import Method
from pine_engine.network.model_patching import PatchedModel
from pine_engine.prompts.layout import TokenLayout


@dataclass(frozen=True)
class Run:
    """One prompt under the methods of its settings, checked against the model.

    Attributes:
        patched_models: Networks of the model at the start of the run.
    """

    model: PreparedModel
    patched_models: Sequence[PatchedModel]
    layout: TokenLayout
    settings: RunSettings

    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emit the events of the run, RunFinished last."""
        emit(RunFinished(self.finish(emit, cancelled)))

    @torch.inference_mode()
    def finish(self, emit: Emit | None = None, cancelled: threading.Event = NEVER) -> RunResult:
        """Return the result, and emit the other events.

        Raises Cancelled if the flag is set, and ModelError for logits that are not finite.
        """
        answers = self.prefill(emit, cancelled)
        for _ in self.decode(answers, emit, cancelled):
            pass
        return self.result(answers)

    def prefill(self, emit: Emit | None, cancelled: threading.Event) -> list[ActiveGeneration]:
        """Prefill the prompt under every method, under torch.inference_mode."""
        return [self._prefill(method, emit, cancelled) for method in self.settings.methods]

    def _prefill(self, method: Method, emit: Emit | None, cancelled: threading.Event) -> ActiveGeneration:
        settings = self.settings
        recorder = TraceRecorder(settings.trace) if settings.trace else None
        began = time.perf_counter()
        row, logits = passes.prefill(
            self.patched_models,
            self.layout,
            method,
            reserved_tokens=settings.max_new_tokens,
            logits_to_keep=self.layout.suffix_length if settings.return_logits else 1,
            recorder=recorder,
            on_layer=layer_progress_callback(method.name, self.model.num_layers, emit, cancelled),
            cached_sequences=settings.prefix_cache.rows,
        )
        settings.prefix_cache.rows.append(row)
        synchronize(logits)
        seconds = time.perf_counter() - began
        if emit:
            emit(PrefillDone(method.name, seconds))
        kept = [logits.float().cpu()] if settings.return_logits else []
        return ActiveGeneration(
            method.name, (row,), logits[-1:], seconds, recorder=recorder, kept_logits=kept
        )

    def decode(
        self,
        answers: Sequence[ActiveGeneration],
        emit: Emit | None,
        cancelled: threading.Event,
        *,
        batch_size: int = 0,
        num_requests: int = 1,
    ) -> Iterator[ActiveGeneration]:
        """Decode answers of this run, or of several runs with its settings; see decode_answers.

        The batch size is the number of answers, if it is larger.
        """
        for answer in decode_answers(
            self.model,
            iter(answers),
            max_new_tokens=self.settings.max_new_tokens,
            batch_size=max(batch_size, len(answers)),
            stop_at_eos=self.settings.stop_at_eos,
            emit=emit,
            cancelled=cancelled,
            num_requests=num_requests,
        ):
            if answer.error:
                raise answer.error
            yield answer

    def result(self, answers: Sequence[ActiveGeneration]) -> RunResult:
        """Return the result of finished answers."""
        return RunResult(
            layout=self.layout,
            answers={answer.method: answer.answer for answer in answers},
            traces={
                answer.method: answer.recorder.finish(answer.rows[0].state.plan, answer.num_steps)
                for answer in answers
                if answer.recorder
            },
            logits={answer.method: torch.cat(answer.kept_logits) for answer in answers if answer.kept_logits},
        )


def prepare_run(model: PreparedModel, prompt: PromptLike, options: RunOptions) -> Run:
    """Return a run of validated arguments. Raises InputError and ModelError as Engine.run."""
    parts, others = split_options(options)
    settings = check_options(**others)
    layout = tokenize_request(model, prompt, **parts)
    model.check_length(layout, settings.max_new_tokens)
    settings.prefix_cache.belong_to(model.model)
    if settings.trace:
        num_tokens = layout.num_tokens + settings.max_new_tokens
        settings.trace.check(model.num_layers, model.num_heads, num_tokens)
    return Run(model, model.patched_models, layout, settings)
