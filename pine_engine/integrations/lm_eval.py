"""Model of lm-evaluation-harness: documents are marked in the context, and their order is an argument.

Importing this module registers the model as `pine`. Earlier messages of a chat, and marked documents of
earlier examples, are text before the documents.
"""

import json
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import GenerationFinished, TokenGenerated
from pine_engine.errors import InputError
from pine_engine.methods.table import get_method
from pine_engine.prompts.chat_templates import read_kwargs
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.marked import MARK, chat_prompt, tokenize_marked, tokenize_plain
from pine_engine.prompts.messages import read_chat
from pine_engine.prompts.orders import ALL_ORDERS_UP_TO, sample_orders
from pine_engine.prompts.prompt import Piece, Prompt

MAX_NEW_TOKENS = 256  # limit of tasks that set none, as in lm-evaluation-harness
MIN_TOKENS = 2  # of a prompt with a method; shorter ones are the same under all methods
CHAT = "\ue000chat"  # begins a context that is a chat in JSON


class PineLM(LM):  # type: ignore[misc]  # lm_eval has no types
    """An engine as a model of lm-evaluation-harness.

    Args:
        pretrained: Hub id, folder or GGUF file. Default: the embedded model.
        engine: Engine in place of a model to load.
        method: Name in METHODS. Default: Engine.default_method.
        order: 0 for the documents as in the context, n for the n-th of other orders, which are sampled.
        seed: Seed of the sampled orders.
        chat_template_kwargs: Arguments of the chat template, such as {"enable_thinking": False}.
        dtype: See Engine.load.
        device: See Engine.load.
        batch_size: Ignored: requests are computed one at a time.
        max_batch_size: Ignored.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        *,
        engine: Engine | None = None,
        method: str | None = None,
        order: int = 0,
        seed: int = 0,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        dtype: str = "auto",
        device: str | None = None,
        batch_size: object = None,
        max_batch_size: object = None,
    ) -> None:
        super().__init__()
        self.engine = engine or Engine.load(pretrained, dtype=dtype, device=device or "cpu")
        selected = self.engine.default_method if method is None else get_method(method)
        self.engine.check_method(selected)
        self.method = selected.name
        self.order, self.seed = order, seed
        self.chat_template_kwargs = read_kwargs(chat_template_kwargs)

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer, for the cache of requests."""
        return self.engine.model_name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the chat template of the model."""
        template = self.engine.tokenizer.chat_template if chat_template else None
        return None if template is None else str(template)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the chat as JSON. The template is applied later, because texts of messages are data."""
        return CHAT + json.dumps(chat_history)

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation in nats, and whether it is the greedy answer."""
        found: list[tuple[float, bool]] = []
        for context, group in groupby(requests, lambda request: request.args[0]):
            same = list(group)
            text = context.rstrip()  # blanks at the end belong to the continuation
            continuations = [context[len(text) :] + request.args[1] for request in same]
            for request, score in zip(same, self._score(text, continuations), strict=True):
                found.append(score)
                self.cache_hook.add_partial("loglikelihood", request.args, found[-1])
        return found

    def _score(self, context: str, continuations: Sequence[str]) -> list[tuple[float, bool]]:
        if not context.startswith(CHAT) and len(ids := tokenize_plain(self.engine, context)) < MIN_TOKENS:
            context_ids = ids or [self._first_token]
            return [
                self._score_tokens(context_ids, self.engine.tokenize_answer(text)) for text in continuations
            ]
        scores = self.engine.score(self._layout(context), continuations, methods=self.method)[self.method]
        return [(score.total, score.is_greedy) for score in scores]

    @property
    def _first_token(self) -> int:
        """Token before a text without context, as in lm-evaluation-harness."""
        tokenizer = self.engine.tokenizer
        first = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        return int(first)

    def _score_tokens(self, context: Sequence[int], scored: Sequence[int]) -> tuple[float, bool]:
        """Return log-probability of tokens after a context under the stock model, and if they are greedy."""
        import torch

        model = self.engine.model
        tokens = torch.tensor([*context, *scored], device=model.device)
        expected = tokens[-len(scored) :]
        with torch.inference_mode():
            logprobs = model(tokens[None, :-1]).logits[0, -len(scored) :].float().log_softmax(-1)
        total = float(logprobs.gather(-1, expected[:, None]).sum())
        return total, bool((logprobs.argmax(-1) == expected).all())

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of each text under the stock model, in nats.

        The text has no documents. Beyond the context of the model, it is split into disjoint windows.
        """
        tokenizer, length = self.engine.tokenizer, self.engine.max_context_length
        found: list[float] = []
        for request in requests:
            ids = tokenizer.encode(request.args[0], add_special_tokens=False)
            windows = get_rolling_token_windows(ids, self._first_token, length, 1)
            total = sum(self._score_tokens(*make_disjoint_window(window))[0] for window in windows)
            found.append(total)
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return greedy answers up to the first stop string of each request."""
        found = []
        for request in requests:
            context, options = request.args
            found.append(self._generate(self._layout(context), options))
            self.cache_hook.add_partial("generate_until", request.args, found[-1])
        return found

    def _generate(self, layout: TokenLayout, options: dict[str, Any]) -> str:
        options = normalize_gen_kwargs(options, MAX_NEW_TOKENS)
        if options["do_sample"]:
            raise InputError(
                "answers are greedy: set do_sample to false and temperature to 0", field="do_sample"
            )
        stops, limit = options["until"], options["max_gen_toks"]
        free = self.engine.max_context_length - layout.num_tokens
        text = ""
        events = self.engine.generate(layout, methods=self.method, max_new_tokens=max(1, min(limit, free)))
        for event in events:
            if isinstance(event, TokenGenerated | GenerationFinished):
                text = event.text if isinstance(event, TokenGenerated) else event.answer.text
                if places := [text.find(stop) for stop in stops if stop and stop in text]:
                    events.close()
                    return text[: min(places)]
        return text

    def _layout(self, context: str) -> TokenLayout:
        """Return the tokens of a context, with its documents in the order of this model."""
        if context.startswith(CHAT):
            layout, num_documents = self._chat_layout(json.loads(context.removeprefix(CHAT)))
        else:
            layout, num_documents = tokenize_marked(self.engine, context, ignores_earlier=True)
        return layout.reorder(nth_order(num_documents, self.order, self.seed)) if num_documents else layout

    def _chat_layout(self, history: list[dict[str, str]]) -> tuple[TokenLayout, int]:
        beginning = history.pop()["content"] if history[-1]["role"] == "assistant" else ""
        *earlier, question = history
        unmarked = [{**turn, "content": MARK.sub("", turn["content"])} for turn in earlier]
        chat = read_chat([*unmarked, question])
        prompt, num_documents = chat_prompt(
            self.engine.tokenizer, chat, ignores_earlier=True, chat_template_kwargs=self.chat_template_kwargs
        )
        answer = (Piece(beginning),) if beginning else ()
        layout = self.engine.tokenize(Prompt(prompt.prefix, prompt.documents, prompt.suffix + answer))
        return layout, num_documents


def nth_order(num_documents: int, number: int, seed: int = 0) -> tuple[int, ...]:
    """Return an order of documents: 0 is the unchanged one, and the following ones differ from each other.

    After all orders of a few documents, the first follows again.
    """
    if num_documents > ALL_ORDERS_UP_TO:
        return sample_orders(num_documents, number, seed)[-1]
    unchanged, *others = sample_orders(num_documents)
    random.Random(seed).shuffle(others)
    orders = [unchanged, *others]
    return orders[number % len(orders)]


def evaluate_orders(
    engine: Engine,
    tasks: Sequence[Any],
    *,
    methods: Sequence[str],
    num_orders: int,
    seed: int = 0,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Yield mean and spread over document orders of each metric of each task and method.

    Args:
        engine: Engine that answers.
        tasks: Names or objects of tasks, as in `lm_eval.simple_evaluate`.
        methods: Names of methods.
        num_orders: Number of orders, the unchanged one first.
        seed: Seed of the sampled orders.
        chat_template_kwargs: Arguments of the chat template.
        progress: Called after each order with a text.
        **options: Arguments of `lm_eval.simple_evaluate`, such as task_manager, limit and num_fewshot.
    """
    import lm_eval

    for method in methods:
        values: dict[tuple[str, str], list[float]] = {}
        for order in range(num_orders):
            kwargs: dict[str, Any] = {"seed": seed, "chat_template_kwargs": chat_template_kwargs}
            model = PineLM(engine=engine, method=method, order=order, **kwargs)
            results = lm_eval.simple_evaluate(model, tasks=list(tasks), bootstrap_iters=0, **options)[
                "results"
            ]
            progress(f"{method}: order {order + 1} of {num_orders}")
            for task, metrics in results.items():
                for metric, value in metrics.items():
                    if isinstance(value, float) and "_stderr" not in metric:
                        values.setdefault((task, metric.removesuffix(",none")), []).append(value)
        for (task, metric), found in values.items():
            yield {
                "method": method,
                "task": task,
                "metric": metric,
                "mean": statistics.fmean(found),
                "std": _deviation(found),
                "min": float(np.min(found)),
                "max": float(np.max(found)),
                "orders": found,
            }


def _deviation(values: Sequence[float]) -> float:
    """Return the standard deviation, 0 of a single value, and NaN if a value is not finite."""
    if not np.isfinite(values).all():
        return math.nan
    return statistics.stdev(values) if len(values) > 1 else 0.0


if "pine" not in model_registry:  # registered by the entry point of the package
    model_registry.register("pine")(PineLM)
