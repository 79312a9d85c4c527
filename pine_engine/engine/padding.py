"""Which rows of a batch one network computes together, so that no row's bits tell how many others there are.

A matrix product gives each of its rows the same bits whatever stands beside it, but not whatever their number
(docs/exactness.md): one row alone is another kernel than several, and on some processors 8 rows are another
than 16.
"""

from collections.abc import Sequence

from pine_engine.attention.state import Row, input_device
from pine_engine.network.rowwise import knows_no_number
from pine_engine.network.wiring import Wiring


def rows_alike(wiring: Wiring, rows: Sequence[Row | None]) -> list[int]:
    """Places of the batch that this network computes, in order; where a row is not its own it reads padding.

    Its own rows alone, where two or more of them have the same bits in any number; one row of several brings
    a neighbour along, so that it stays among two. Elsewhere all places, so that the number never changes.
    """
    network = wiring.network
    if not knows_no_number(network.dtype, input_device(network)):
        return list(range(len(rows)))
    places = [place for place, row in enumerate(rows) if row and row.state.wiring is wiring]
    if len(places) == 1 < len(rows):
        return sorted((places[0], 0 if places[0] else 1))
    return places
