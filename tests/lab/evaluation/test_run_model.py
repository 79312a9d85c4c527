"""Model of a run: the options that select it again, and the times that predict later work."""

from dataclasses import replace

from pine_engine.lab.evaluation.run_model import model_of
from pine_engine.scheduling.work import Work
from tests.support.records import run_info

LOADED = run_info().platform
SERVED = LOADED.model_copy(update={"device": "endpoint"})
WORK = Work(2, 30, 4, 1, 0.5, 0.25)


def test_loaded_model_is_selected_by_its_address() -> None:
    model = model_of(LOADED, "folder", {})
    assert model.options == {"model": "folder", "dtype": "float32", "device": "cpu"}
    assert model.place == "cpu, a processor, threads: 2" and model.predictive(WORK) == WORK


def test_served_model_is_selected_by_server_and_name() -> None:
    model = model_of(SERVED, "http://h/v1", {"n": 1})
    assert model.options == {"endpoint": "http://h/v1", "model": LOADED.model, "extra-body": '{"n": 1}'}
    assert model.place == "http://h/v1"
    assert model.predictive(WORK) == replace(WORK, prefill_s=0, decode_s=0)


def test_runs_of_two_servers_differ() -> None:
    first, second = (run_info(platform=SERVED, address=url) for url in ("http://a/v1", "http://b/v1"))
    assert first.differences(second) == ["endpoint http://a/v1, not http://b/v1"]
    assert not run_info(address="a").differences(run_info(address="b"))
