"""The model of lm-evaluation-harness, mostly with the real package in an environment of its own."""

import importlib
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.support.commands import write
from tests.support.environments import run_apart
from tests.support.pages import PAGES, blocks, commands

CHECK = """
import json, sys
from types import SimpleNamespace
from pine_engine import Engine, InputError, Prompt
from pine_engine.integrations.lm_eval import PineLM, nth_order
from pine_engine.prompts.messages import Message
from pine_engine.prompts.prompt import build_prompt
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM

assert get_model("pine") is PineLM
orders = [nth_order(3, number) for number in range(6)]
assert orders[0] == (0, 1, 2) and len(set(orders)) == 6 and nth_order(3, 6) == orders[0]
assert len({nth_order(7, number) for number in range(20)}) == 20 and nth_order(7, 0) == tuple(range(7))
assert len({tuple(nth_order(3, number, seed) for number in range(6)) for seed in range(9)}) > 1

engine = Engine.load(sys.argv[1])
request = lambda *args: SimpleNamespace(args=args)
context = "Read. <document>Ann.</document> <document>Ben.</document> <document>Cy.</document> Who? "
parts = ("Read. ", ["Ann. ", "Ben. ", "Cy."], " Who?")
for method in ("vanilla", "pine"):
    for number, order in enumerate(orders[:3]):
        model = PineLM(engine=engine, method=method, order=number, batch_size=4)
        layout = engine.tokenize(Prompt(*parts)).reorder(order)
        expected = engine.score(layout, [" Ann", " Ben"], methods=method)[method]
        found = model.loglikelihood([request(context, "Ann"), request(context, "Ben")])
        assert found == [(score.total, score.is_greedy) for score in expected]
        chat = model.apply_chat_template([
            {"role": "system", "content": "Brief."}, {"role": "user", "content": "<document>a</document> b?"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": context.strip()},
        ])
        names = ("prefix", "documents", "suffix")
        turns = [Message("user", "a b?"), Message("assistant", "b")]
        options = dict(zip(names, parts), system="Brief.", turns=turns)
        prompt = build_prompt(engine.tokenizer, **options)
        layout = engine.tokenize(prompt).reorder(order)
        answer = engine.run(layout, methods=method, max_new_tokens=8).answers[method]
        options = {"until": [], "max_gen_toks": 8}
        assert model.generate_until([request(chat, options)]) == [answer.text]
        stop = answer.text[3:5]
        expected = answer.text[: answer.text.index(stop)]
        assert model.generate_until([request(chat, {**options, "until": ["###", stop]})]) == [expected]
        ((_, is_greedy),) = model.loglikelihood([request(chat, answer.text)])
        assert is_greedy
engine.tokenizer.chat_template += "{{ tone }}"
kwargs = {"tone": "kind"}
model = PineLM(engine=engine, chat_template_kwargs=kwargs)
chat = model.apply_chat_template([{"role": "user", "content": context.strip()}])
prompt = build_prompt(engine.tokenizer, **dict(zip(names, parts)), chat_template_kwargs=kwargs)
layout = engine.tokenize(prompt)
answer = engine.run(layout, methods="pine", max_new_tokens=8).answers["pine"]
assert model.generate_until([request(chat, {"max_gen_toks": 8})]) == [answer.text]
plain = engine.run(engine.tokenize(Prompt((), ["Who"], "?")), methods="vanilla", max_new_tokens=4)
assert model.generate_until([request("Who?", {"max_gen_toks": 4})]) == [plain.answers["vanilla"].text]
try:
    model.generate_until([request(context, {"do_sample": True})])
except InputError as error:
    assert error.field == "do_sample"
else:
    raise AssertionError
options = {"max_gen_toks": 4, "do_sample": False, "temperature": 0.7}
assert model.generate_until([request("Who?", options)]) == [plain.answers["vanilla"].text]
text = "Ann has it. " * 90  # longer than the context
hf = HFLM(pretrained=engine.model, tokenizer=engine.tokenizer, max_length=engine.max_context_length)
assert len(engine.tokenizer.encode(text)) > engine.max_context_length
short = [request(*pair) for pair in [("", "Ann"), ("", " Ann has"), ("W", "ho?")]]
pairs = zip(*(each.loglikelihood(short) for each in (hf, model)), strict=True)
assert all(abs(expected[0] - found[0]) < 1e-3 and expected[1] == found[1] for expected, found in pairs)
assert model.loglikelihood([request(" ", "Who")]) == model.loglikelihood([request("", " Who")])
(expected,), (found,) = (each.loglikelihood_rolling([request(text)]) for each in (hf, model))
assert abs(found - expected) < 1e-3 * abs(expected)
"""

TASK = """
dataset_path: json
dataset_kwargs: {data_files: {test: keys.jsonl}}
test_split: test
fewshot_split: test
doc_to_text: "{% for text in documents %}<document>{{ text }}</document>\\n{% endfor %}{{ question }}"
"""
TASKS = {
    "keys": "task: keys\noutput_type: generate_until\ndoc_to_target: '{{ answers[gold] }}'\n"
    "generation_kwargs: {until: ['.'], max_gen_toks: 4}\nmetric_list: [{metric: exact_match}]",
    "keys_choice": "task: keys_choice\noutput_type: multiple_choice\ndoc_to_target: gold\n"
    "doc_to_choice: '{{ answers }}'\nmetric_list: [{metric: acc}, {metric: acc_mutual_info}]",
}
EXAMPLES: list[dict[str, Any]] = [
    {"documents": ["Ann 1.", "Ben 2.", "Cy 3."], "question": f"{n}?", "answers": ["A", "B"], "gold": n % 2}
    for n in range(4)
]


@pytest.mark.parametrize("scores", [[0.5, math.nan], [math.nan, 0.5]])
def test_numbers_over_orders_are_nan_with_a_nan(scores: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    harness = MagicMock()
    for name in (
        "lm_eval",
        "lm_eval.api",
        "lm_eval.api.model",
        "lm_eval.api.registry",
        "lm_eval.models.utils",
        "lm_eval.utils",
    ):
        monkeypatch.setitem(sys.modules, name, harness)
    harness.LM = object
    results = [{"results": {"task": {"acc,none": score, "acc_stderr,none": 0.0}}} for score in scores]
    harness.simple_evaluate.side_effect = results
    module = importlib.import_module("pine_engine.integrations.lm_eval")
    monkeypatch.delitem(sys.modules, module.__name__)
    (row,) = module.evaluate_orders(MagicMock(), ["task"], methods=["pine"], num_orders=2)
    assert (row["metric"], row["orders"]) == ("acc", scores)
    assert all(math.isnan(row[number]) for number in ("mean", "std", "min", "max"))


@pytest.fixture(scope="module")
def python(published: Callable[..., Path]) -> Path:
    (command,) = [line for line in commands(PAGES["evaluation.md"]) if "install lm-eval" in line]
    return published(*command.split()[2:])


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_model_scores_and_generates_as_engine(python: Path, tiny: Path, tmp_path: Path) -> None:
    run_apart(python, tmp_path, write(tmp_path / "check.py", CHECK), tiny)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_documented_task_runs(python: Path, tiny: Path, tmp_path: Path) -> None:
    page = PAGES["evaluation.md"].read_text(encoding="utf-8")
    (task,) = re.findall(r"^```yaml\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    (script,) = blocks(PAGES["evaluation.md"])
    (command,) = [line for line in commands(PAGES["evaluation.md"]) if "engine lm-eval" in line]
    (tmp_path / "TASKS").mkdir()
    write(tmp_path / "TASKS" / "keys.yaml", task)
    examples = [one | {"answer": one["answers"][one["gold"]]} for one in EXAMPLES]
    write(tmp_path / "keys.jsonl", "\n".join(map(json.dumps, examples)))
    printed = run_apart(python, tmp_path, *command.split()[1:], PINE_MODEL=str(tiny))
    assert all(f"{method} " in printed for method in ("vanilla", "pine"))
    printed = run_apart(python, tmp_path, write(tmp_path / "script.py", script))
    assert "exact_match" in printed


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_tasks_have_mean_and_spread_over_orders(python: Path, tiny: Path, tmp_path: Path) -> None:
    for name, text in TASKS.items():
        write(tmp_path / f"{name}.yaml", text + TASK)
    write(tmp_path / "keys.jsonl", "\n".join(map(json.dumps, EXAMPLES)))
    command = "-m pine_engine lm-eval keys,keys_choice --include-path . --json --methods vanilla,pine"
    options = "--num-orders 3 --limit 3 --apply-chat-template --num-fewshot 1 --model"
    *_, line = run_apart(python, tmp_path, *command.split(), *options.split(), tiny).splitlines()
    rows: list[dict[str, Any]] = json.loads(line)["results"]
    assert {(row["method"], row["task"]) for row in rows} == {
        (method, task) for method in ("vanilla", "pine") for task in TASKS
    }
    for row in rows:
        assert len(row["orders"]) == 3 and row["min"] <= row["mean"] <= row["max"]
        assert row["method"] != "pine" or row["std"] == 0
