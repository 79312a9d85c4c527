"""Engine and log of the tests of the page, whose runs these tests start."""

from tests.viz.page.conftest import engine as engine
from tests.viz.page.conftest import log_runs as log_runs
from tests.viz.page.conftest import source as source
