"""One shuffle of a tiny model, traced, that all figures are drawn of."""

import pytest

from pine_engine import Engine, ShuffleResult
from tests.support.families import TinyLlama
from tests.support.figure_records import LAYOUT
from tests.support.reference import exact_llama


@pytest.fixture(scope="session")
def tiny_shuffle(tiny_llama: TinyLlama) -> ShuffleResult:
    """Three documents of different lengths in all orders, under methods that place them in three ways."""
    return Engine(exact_llama(tiny_llama)).shuffle(
        LAYOUT, methods=["vanilla", "pcw", "pine"], max_new_tokens=3, stop_at_eos=False, trace=True
    )
