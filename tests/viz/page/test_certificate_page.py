"""Printable certificates have every number as measured."""

import re
from pathlib import Path
from typing import Any

import pytest

import pine_engine as pine
from tests.support.viz_reading import read_html, table_cells
from viz.page.certificate_page import _verdict, certificate_page

BOTH = [(0, 1), (1, 0)]
RECORDED = Path(__file__).parents[2] / "golden" / "outputs" / "version_1" / "certificate.json"


@pytest.fixture(scope="module")
def certificate() -> pine.Certificate:
    return pine.read_certificate(RECORDED)


def change(certificate: pine.Certificate, **fields: Any) -> pine.Certificate:
    first, *others = certificate.results
    return certificate.model_copy(update={"results": [first.model_copy(update=fields), *others]})


def test_page_has_the_numbers_of_every_method(certificate: pine.Certificate) -> None:
    small = change(certificate, max_abs_logit_diff=2e-7, logprob_spread=3e-8, bitwise_identical=False)
    results, orders = read_html(certificate_page(small)).all("table")
    count = len(certificate.orders)
    first = certificate.results[0]
    numbers = [f"{first.num_matching_answers} of {count}", str(first.num_distinct_answers)]
    assert [cell.text for cell in table_cells(results)[0]][:4] == [*numbers, "2.0e-07", "3.0e-08 nats"]
    assert len(table_cells(results)) == len(certificate.results)
    assert [len(row) for row in table_cells(orders)] == [len(certificate.results)] * count


def test_page_has_request_platform_and_command(certificate: pine.Certificate) -> None:
    text = " ".join(read_html(certificate_page(certificate)).all("main")[0].text.split())
    request = certificate.request
    parts = [request.question, *(document.text for document in request.documents), certificate.command]
    parts += [result.logits_sha256 for result in certificate.results] + [
        f"torch{certificate.platform.torch}",
        certificate.made,
    ]
    assert [part for part in parts if " ".join(part.split()) not in text] == []


@pytest.mark.parametrize(
    ("method", "held", "verdict"),
    [
        ("pine", True, "invariant ✓"),
        ("pine", False, "invariance violated ✗"),
        ("vanilla", True, "no change observed"),
        ("vanilla", False, "changed"),
    ],
)
def test_verdict_is_of_identity(certificate: pine.Certificate, method: str, held: bool, verdict: str) -> None:
    result = change(certificate, bitwise_identical=held).results[0]
    assert _verdict(pine.METHODS[method], result) == verdict


@pytest.mark.parametrize(
    ("seed", "orders", "words"),
    [(3, BOTH, "seed 3"), (None, BOTH, "all orders"), (None, BOTH[:1], "first of 2")],
)
def test_page_names_the_origin_of_the_orders(
    certificate: pine.Certificate, seed: int | None, orders: list[tuple[int, int]], words: str
) -> None:
    request = certificate.request.model_copy(update={"documents": certificate.request.documents[:2]})
    fields = {"seed": seed, "orders": orders, "request": request}
    assert words in read_html(certificate_page(certificate.model_copy(update=fields))).all("p")[0].text


def test_page_needs_no_other_file(certificate: pine.Certificate) -> None:
    html = certificate_page(certificate)
    assert html.startswith("<!doctype html>") and "default-src 'none'" in html
    assert not re.search(r"<(script|link|img|iframe|base|form)\b|@import|url\(|https?:", html)
