"""The models that the paper measures, as they were released on the Hugging Face hub."""

from dataclasses import dataclass

from pine_engine.evaluation.report.published import published
from pine_engine.prompts.tasks import TASKS


@dataclass(frozen=True)
class PaperModel:
    """hub_id: what `load` takes. parameters: their number. context: in tokens."""

    hub_id: str
    parameters: int
    context: int

    @property
    def name(self) -> str:
        """As the paper calls it."""
        return self.hub_id.rpartition("/")[2]

    @property
    def used_for(self) -> tuple[str, ...]:
        """Labels of the tasks for which the paper names it."""
        named = {row.task for row in published().remarks if row.model == self.name}
        if any(row.model == self.name for row in published().judge_scores):
            named.add("judge_pair")
        return tuple(row.label for row in TASKS.values() if row.name in named)


PAPER_MODELS = (
    PaperModel("meta-llama/Meta-Llama-3-8B-Instruct", 8_030_261_248, 8192),
    PaperModel("meta-llama/Meta-Llama-3-70B-Instruct", 70_553_706_496, 8192),
    PaperModel("Qwen/Qwen1.5-1.8B-Chat", 1_836_828_672, 32768),
    PaperModel("Qwen/Qwen1.5-4B-Chat", 3_950_369_280, 32768),
    PaperModel("Qwen/Qwen1.5-7B-Chat", 7_721_324_544, 32768),
    PaperModel("Qwen/Qwen1.5-32B-Chat", 32_512_218_112, 32768),
    PaperModel("Qwen/Qwen1.5-72B-Chat", 72_287_920_128, 32768),
    PaperModel("Qwen/Qwen2.5-72B-Instruct", 72_706_203_648, 32768),
    PaperModel("Qwen/Qwen1.5-110B-Chat", 111_209_914_368, 32768),
)
