"""Tests of short links: their life, their bounds and their ids."""

import pytest

from pine_engine.errors import InputError
from viz.page.short_links import KEPT_S, MAX_BYTES, MAX_LINKS, MAX_OF_ADDRESS, ShortLinks


def test_session_is_found_for_a_day_after_its_last_use(clock: list[float]) -> None:
    links = ShortLinks()
    name = links.keep("code", "one")
    clock[0] += KEPT_S - 1
    assert links.keep("code", "two") == name
    clock[0] += KEPT_S - 1
    assert links.find(name) == "code"
    clock[0] += 2
    with pytest.raises(InputError, match="expired"):
        links.find(name)


def test_id_is_short_and_differs_between_servers() -> None:
    first, second = ShortLinks(), ShortLinks()
    names = {links.keep(code, "one") for links in (first, second) for code in ("x", "y")}
    assert len(names) == 4 and all(len(name) == 10 and name.islower() for name in names)
    with pytest.raises(InputError):
        second.find(first.keep("x", "one"))


def test_code_of_a_link_is_returned_as_it_is() -> None:
    assert ShortLinks().find("eNqrVspLzE1VslIqTi0uzszPU6oFADRxBgo") == "eNqrVspLzE1VslIqTi0uzszPU6oFADRxBgo"


def test_address_has_a_share_of_the_links() -> None:
    links = ShortLinks()
    for number in range(MAX_OF_ADDRESS):
        links.keep(f"code {number}", "one")
    with pytest.raises(InputError):
        links.keep("another", "one")
    links.keep("code 0", "one")  # is kept already
    links.keep("another", "two")


def test_number_and_bytes_of_all_links_are_bounded() -> None:
    many, large = ShortLinks(), ShortLinks()
    for number in range(MAX_LINKS):
        many.keep(str(number), str(number))
    large.keep("x" * (MAX_BYTES - 1), "one")
    for links in (many, large):
        with pytest.raises(InputError):
            links.keep("yy", "another")
    assert large.find(large.keep("x" * (MAX_BYTES - 1), "one"))
