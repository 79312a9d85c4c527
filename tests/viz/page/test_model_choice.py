"""Visitors of one page who choose models: each has his own, and only what the host allows."""

import asyncio
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.models.dtypes import BYTES
from pine_engine.models.listing import LoadableModel
from pine_engine.models.resources import in_words
from pine_engine.scheduling.run_state import StopFlag
from tests.support.page_client import Page, PageSession, Question
from tests.support.running import loaded_source, views_of
from tests.support.serving import Serve
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import read_html
from tests.support.widgets import build_app, function_of
from viz.page.answers.answering import prepare_answers
from viz.page.common.host_settings import HostSettings
from viz.page.form.documents import entries_from
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.jobs import sources as sources_module
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Choice, Sources
from viz.page.model_choice import facts_html

FIRST = load_examples()[0]
QUESTION = Question(
    "Who has it?", tuple(document.text for document in FIRST.documents), ("vanilla", "pine"), tokens=24
)


@pytest.fixture(scope="module")
def folders(tiny_llama: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return two models with different answers to the page's examples."""
    where = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("first", "second")):
        tiny_llama(max_context_length=4096, head_dim=32, seed=seed).save_pretrained(where / name)
        letter_tokenizer().save_pretrained(where / name)
    return {name: where / name for name in ("first", "second")}


def answers_alone(folder: Path) -> dict[str, str]:
    """Return the answers of the model by method."""
    entries = entries_from([("", text) for text in QUESTION.documents])
    request = Form(FIRST.task, QUESTION.question, "", QUESTION.methods, QUESTION.tokens, entries)
    *_, last = views_of(prepare_answers, Engine.load(str(folder)), request)
    return {card.method: card.text.strip() for card in last.cards}


async def load(page: Page, session: PageSession, name: object, dtype: str = "float32") -> str:
    """Load a model and return all messages."""
    event = page.click_event("load-model")
    before = len(session.messages)
    await session.send(event, page.values(event, model=str(name), dtype=dtype))
    return unescape("".join(session.messages[before:]))


@pytest.mark.slow
def test_answers_on_two_models_are_those_of_each_alone(
    serve: Serve, folders: dict[str, Path], tmp_path: Path
) -> None:
    expected = {name: answers_alone(folder) for name, folder in folders.items()}
    assert expected["first"] != expected["second"]

    async def visit(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            page = await Page.fetch(client)
            one, two, three = sessions = [PageSession(client, page) for _ in range(3)]
            for session in sessions:
                await session.open()
            loaded = await load(page, two, folders["second"])
            assert f"Model changed to {folders['second']} (float32)." in loaded
            for dtype in ("bfloat16", "float16"):  # loaded by a third session during the runs of the others
                *runs, other = await asyncio.gather(
                    one.run(QUESTION), two.run(QUESTION), load(page, three, folders["second"], dtype)
                )
                for (name, texts), updates in zip(expected.items(), runs, strict=True):
                    assert f"({name}, " in updates.status and updates.by_method == texts
                assert f"({dtype})" in other

    with serve(tmp_path / "app.log", "--model", str(folders["first"]), "--dtype", "float32") as app:
        asyncio.run(visit(app.url))


def test_public_page_loads_allowed_models_only(folders: dict[str, Path]) -> None:
    secret = str(folders["first"])
    source = loaded_source(Engine.load(secret), "first")
    page = build_app(source, HostSettings(model=secret), allowed=("org/listed",))
    (event,) = (event for event in page.fns.values() if event.name == "load" and event.queue)
    model: Any
    dtype: Any
    _, model, dtype, facts = event.inputs
    assert [name for _, name in model.choices] == ["first", "org/listed"] and not model.allow_custom_value
    assert secret not in str(page.get_config_file())

    def last_update(name: str, facts: str = "") -> dict[Any, Any]:
        assert event.fn is not None
        *_, last = event.fn(StopFlag(), name, dtype.value, facts)
        return dict(last)

    def last_message(name: str) -> str:
        return str(last_update(name)[event.outputs[0]])

    for name in (str(folders["second"]), secret, "/etc/passwd", "org/other", "~/x.gguf", ""):
        with pytest.raises(gr.Error, match="not in the list of choices"):
            model.preprocess(name)
        assert "Available: first, org/listed." in last_message(name)
        assert event.outputs[2] not in last_update(name), "the current model stays"
    assert "&#39;org/listed&#39; is not on this machine" in last_message("org/listed")
    assert facts.elem_id == "model-facts"
    shown = function_of(page, "show_facts")("org/listed", dtype.value)
    assert "the hub cannot be reached" in shown, "the reason is shown once"
    repeated = str(last_update("org/listed", shown)[event.outputs[0]])
    assert "hub" not in repeated and "Current model unchanged." in repeated
    assert "Model changed to first (float32)." in last_message("first")
    assert last_update("first")[event.outputs[2]] is None, "results of the host's model stay current"


def test_facts_state_the_memory_of_each_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LoadableModel("a", "folder", 0, 512, "llama", True, "", 10**9)
    sizes = {dtype: in_words(model.memory_bytes(dtype)) for dtype in BYTES}
    monkeypatch.setattr(sources_module, "describe", lambda name: model)
    monkeypatch.setattr(sources_module, "free_memory", lambda device: model.memory_bytes("float32"))
    host = EngineSource(lambda: pytest.fail("not needed"), "host")
    sources = Sources(Choice("host", "float32"), host, allowed=None)
    facts = {
        one.all("dt")[0].text: one.all("dd")[0].text
        for one in read_html(facts_html(sources, Choice("a", "4bit"))).all("div")
        if len(one.all("dt")) == 1
    }
    exceeds = " (exceeds free memory)"
    assert model.memory_bytes("4bit") > model.memory_bytes("float32"), "4-bit weights are kept beside float32"
    for dtype, size in sizes.items():
        assert facts[f"Memory ({dtype})"] == size + (exceeds if dtype == "4bit" else "")
