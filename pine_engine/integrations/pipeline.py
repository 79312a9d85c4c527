"""Pipeline of transformers: `pipeline("pine-text-generation", model=...)`.

Importing this module registers the pipeline.
"""

from typing import Any

from transformers import AutoModelForCausalLM, Pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from pine_engine.engine.engine import Engine
from pine_engine.methods.table import get_method

TASK = "pine-text-generation"


class PinePipeline(Pipeline):
    """Answers to questions over documents, one dictionary with the key `answer` per question.

    Arguments of `Engine.run`, such as documents, and `method` are options of the pipeline or of one call.

    Args:
        *args: Arguments of transformers' Pipeline.
        **kwargs: Options of transformers' Pipeline and of `Engine.run`.
    """

    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.engine = Engine(self.model, self.tokenizer)

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """Return the answer, or one answer per element of a list.

        Args:
            inputs: Question, chat, or dictionary of arguments of `Engine.run`; or a list of these.
            *args: As in transformers' Pipeline.
            **options: As those of the pipeline; batch_size is ignored.
        """
        untyped: Any = super()
        return untyped.__call__(inputs, *args, **options | {"batch_size": 1})

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, options, {}

    def preprocess(self, input_: Any, **options: Any) -> dict[str, Any]:
        """Return arguments of `Engine.run`.

        Args:
            input_: Question, chat, or dictionary of arguments.
            **options: Unused.
        """
        if isinstance(input_, str):
            return {"question": input_}
        return {"messages": input_.messages} if hasattr(input_, "messages") else dict(input_)

    def _forward(self, input_tensors: Any, **options: Any) -> Any:
        options.setdefault("method", self.engine.default_method)
        options = {"methods": options.pop("method"), **options, **input_tensors}
        method = get_method(options.pop("methods"))
        return {"answer": self.engine.run(**options, methods=method).answers[method.name].text}

    def postprocess(self, model_outputs: Any, **options: Any) -> Any:
        """Return the answer.

        Args:
            model_outputs: Dictionary with the answer.
            **options: Unused.
        """
        return model_outputs


if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(
        TASK, pipeline_class=PinePipeline, pt_model=AutoModelForCausalLM, type="text"
    )
