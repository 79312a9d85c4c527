"""Pipeline of transformers: `pipeline("pine-text-generation", model=...)`.

Importing this module registers the pipeline.
"""

from typing import Any

from transformers import AutoModelForCausalLM, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from pine_engine.engine.engine import Engine

TASK = "pine-text-generation"


class PinePipeline(Pipeline):
    """Answers to questions over documents, one dictionary with the key `answer` per question.

    Arguments of `Engine.run`, such as documents, and `method` are options of the pipeline or of one call.

    Args:
        *args: Arguments of transformers' Pipeline.
        **kwargs: Options of transformers' Pipeline and of `Engine.run`.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.engine = Engine(self.model, self.tokenizer)

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """Return the answer, or one answer per element of a list.

        Args:
            inputs: Question, chat, or dictionary of arguments of `Engine.run`; or a list of these.
            *args: As in transformers' Pipeline.
            **options: As those of the pipeline.
        """
        return super().__call__(inputs, *args, **options)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, options, {}

    def preprocess(self, inputs: Any) -> dict[str, Any]:
        """Return arguments of `Engine.run`.

        Args:
            inputs: Question, chat, or dictionary of arguments.
        """
        if isinstance(inputs, str):
            return {"question": inputs}
        return {"messages": inputs.messages} if hasattr(inputs, "messages") else dict(inputs)

    def _forward(self, parts: dict[str, Any], *, method: str = "pine", **options: Any) -> dict[str, Any]:
        (answer,) = self.engine.run(**{**options, **parts}, methods=method).answers.values()
        return {"answer": answer.text}

    def postprocess(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the answer.

        Args:
            answer: Output of the model.
        """
        return answer


if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(
        TASK, pipeline_class=PinePipeline, pt_model=AutoModelForCausalLM, type="text"
    )
