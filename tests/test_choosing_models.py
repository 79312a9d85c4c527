"""Visitors of one page who choose models: each has his own, and only what the host allows."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pine_engine.engine import Engine
from tests.pressing import Visitor
from tests.serving import ServedApp, served_app
from tests.tokenizers import letter_tokenizer
from tests.viz_reading import read_html
from viz.page.answering import answer
from viz.page.documents import entries_from
from viz.page.examples import load_examples
from viz.page.form import Form

FIRST = load_examples()[0]
METHODS = ("vanilla", "pine")
TOKENS = 24


@pytest.fixture(scope="module")
def folders(tiny_llama: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models that read the page's examples, and answer otherwise than each other."""
    where = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("first", "second")):
        tiny_llama(max_context=4096, head_dim=32, seed=seed).save_pretrained(where / name)
        letter_tokenizer().save_pretrained(where / name)
    return {name: where / name for name in ("first", "second")}


@pytest.fixture(scope="module")
def app(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    log = tmp_path_factory.mktemp("app") / "app.log"
    with served_app(log, "--model", str(folders["first"])) as served:
        yield served


def answers_alone(folder: Path) -> list[str]:
    """What the model answers to the first example."""
    entries = entries_from([(document.title, document.text) for document in FIRST.documents])
    asked = Form(FIRST.task, FIRST.question, FIRST.instruction, METHODS, TOKENS, entries)
    *_, last = answer(Engine.load(str(folder)), asked)
    return [card.text for card in last.cards]


def last(views: Iterator[dict[str, str]]) -> dict[str, str]:
    *_, shown = views
    return shown


def run(visitor: Visitor) -> tuple[str, list[str]]:
    """The sentence under Run, and the answers on the cards."""
    shown = last(visitor.watch("run", length=TOKENS, methods=list(METHODS)))
    texts = read_html(shown["answers"]).with_class("pine-answer-text")
    return read_html(shown["run-status"]).text, [text.text.strip() for text in texts]


def load(visitor: Visitor, name: object, dtype: str = "float32") -> str:
    """What is said at the end of loading a model."""
    return read_html(last(visitor.watch("load-model", model=str(name), dtype=dtype))["load-status"]).text


def test_visitors_on_two_models_at_once_get_what_each_gives_alone(
    app: ServedApp, folders: dict[str, Path]
) -> None:
    expected = {name: answers_alone(folder) for name, folder in folders.items()}
    assert expected["first"] != expected["second"]
    with (
        closing(Visitor(app.url, "one")) as one,
        closing(Visitor(app.url, "two")) as two,
        closing(Visitor(app.url, "three")) as three,
        ThreadPoolExecutor(3) as pool,
    ):
        assert load(two, folders["second"]).startswith(
            f"Your next runs are by {folders['second']} in float32."
        )
        for dtype in ("bfloat16", "float16"):
            runs = [pool.submit(run, visitor) for visitor in (one, two)]
            other = pool.submit(load, three, folders["second"], dtype)  # chosen while the others run
            for name, running in zip(expected, runs, strict=True):
                status, texts = running.result()
                assert f"by {name}." in status and texts == [text.strip() for text in expected[name]]
            assert f"in {dtype}" in other.result()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "no/such-model",
            "'no/such-model' is not on this machine and the Hugging Face hub cannot be reached",
        ),
        ("/no/such/folder", "'/no/such/folder' is not a model; expected a folder that holds one"),
        ("", "'' is not a model"),
    ],
)
def test_what_cannot_be_loaded_is_said_and_the_model_stays(app: ServedApp, name: str, sentence: str) -> None:
    with closing(Visitor(app.url, f"wants {name}")) as visitor:
        said = load(visitor, name)
        assert sentence in said and said.endswith("You keep the model that you had.")
        assert "by first." in run(visitor)[0]


def test_on_a_public_page_nothing_but_what_is_allowed_can_be_loaded(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    flags = ("--model", str(folders["first"]), "--models", "org/listed", "--host", "127.0.0.1")
    with served_app(tmp_path / "app.log", *flags) as app, closing(Visitor(app.url, "stranger")) as visitor:
        for name in (str(folders["second"]), str(folders["first"]), "/etc/passwd", "org/other", "~/x.gguf"):
            said = "".join(visitor.press("load-model", model=name, dtype="float32"))
            assert "is not in the list of choices" in said and '"success":false' in said
        assert "'org/listed' is not on this machine" in load(visitor, "org/listed")
        assert load(visitor, "first").startswith("Your next runs are by first in float32.")
        assert "by first." in run(visitor)[0]
        assert str(folders["first"]) not in visitor.served
