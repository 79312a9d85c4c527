"""Leave one document out: how much the log-probability of an answer falls without each document."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from pine_engine.engine.events import Event, RunResult
from pine_engine.engine.likelihood import Score, score_methods
from pine_engine.engine.prepared_model import PreparedModel, check_engine
from pine_engine.engine.run import MethodsLike
from pine_engine.errors import InputError
from pine_engine.input_validation import describe
from pine_engine.reprs import plot, short_repr
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl


@dataclass(frozen=True)
class LeaveOneOut:
    """Scores of one method's own answer with all documents, and without each of them.

    Source: leave-one-out of context-cite (Cohen-Wang et al. 2024, MadryLab/context-cite).

    Attributes:
        score: Score of the answer with all documents.
        without: Scores without the document in each slot, D in all; fewer while they are computed.
        dtype: Dtype of the model.
    """

    score: Score
    without: tuple[Score, ...]
    dtype: str

    __repr__ = short_repr

    @property
    def differences(self) -> tuple[float, ...]:
        """Fall of the log-probability without the document in each slot, in nats, (D,).

        Positive: the document makes the answer more likely.
        """
        return tuple(self.score.total - one.total for one in self.without)

    def to_dict(self) -> dict[str, Any]:
        """Return method, answer, log-probability in nats, and the differences as JSON."""
        score = self.score
        return {
            "method": score.method,
            "text": score.text,
            "logprob": score.total,
            "differences": list(self.differences),
            "dtype": self.dtype,
        }

    def show(self) -> None:
        """Open a figure of the differences, in a notebook or in the browser."""
        plot("plot_leave_one_out", self).show()


def score_without_documents(
    engine: PreparedModel, result: RunResult, *, methods: MethodsLike = None
) -> Generator[Event | LeaveOneOut, None, None]:
    """Score the answers of a run without each document; Engine.leave_one_out returns the results at once.

    Yields PrefillProgress, and after each prompt a LeaveOneOut with the scores so far of one method. Each
    prompt has its own prefill under one method, so that each score equals that of Engine.score. Closing the
    generator stops the model within one layer.

    Args:
        engine: Engine of the run.
        result: Run with at least two documents.
        methods: Methods of the run. Default: all that have an answer.

    Raises:
        InputError: For a single document, a method that is not in the run, or an empty answer.
    """
    check_engine(engine)
    if not isinstance(result, RunResult):
        message = f"invalid result: got {describe(result)}, expected the RunResult of Engine.run"
        raise InputError(message, field="result")
    layout, answers = result.layout, result.answers
    if layout.num_documents < 2:
        raise InputError("one document: got 1, expected at least 2 to leave one out", field="result")
    if not result.answered:
        raise InputError("empty answers: got 0 tokens, expected at least 1 to score", field="result")
    selected = engine.select_methods(result.answered if methods is None else methods)
    for method in selected:
        if method.name not in result.answered:
            message = f"no answer of {method.name}: got a run of {', '.join(answers)}. Run it again with it."
            raise InputError(message, field="methods")
    engine.check_length(layout, max(len(answers[method.name].token_ids) for method in selected))
    slots = range(layout.num_documents)
    prompts = [layout] + [layout.select([slot for slot in slots if slot != out]) for out in slots]

    def work(control: RunControl) -> Coroutine[None]:
        for method in selected:
            answer = answers[method.name]
            scores: list[Score] = []
            for prompt in prompts:
                scored = [(answer.text, answer.token_ids)]
                found = yield from score_methods(engine, prompt, [method], scored, control=control)
                scores += found[method.name]
                control.report(LeaveOneOut(scores[0], tuple(scores[1:]), engine.dtype))

    return stream_shared(work)
