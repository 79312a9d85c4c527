"""Engine and log of the tests of the page, whose runs these tests start."""

from tests.viz.page.conftest import clock as clock, engine as engine, log_runs as log_runs, source as source
