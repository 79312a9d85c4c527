"""Completed work of a run, summed from the events of the engine."""

from pine_engine.engine.events import Event, PrefillDone, RunResult, TokenGenerated
from pine_engine.scheduling.work import Work


class Meter:
    """Completed work of runs over one prompt, summed from the events of the engine."""

    def __init__(self, prompt_tokens: int) -> None:
        self.work = Work()
        self._prompt_tokens = prompt_tokens

    def see(self, event: Event) -> None:
        """Add an event."""
        match event:
            case PrefillDone(seconds=seconds):
                self.work += Work(prompts=1, prompt_tokens=self._prompt_tokens, read_s=seconds)
            case TokenGenerated():
                self.work += Work(new_tokens=1)

    def finish(self, result: RunResult) -> None:
        """Add the results of one order; methods share their decoding steps."""
        answers = result.answers.values()
        steps = max(len(answer.token_ids) for answer in answers)
        self.work += Work(orders=1, write_s=steps * max(answer.decode_s_per_token for answer in answers))
