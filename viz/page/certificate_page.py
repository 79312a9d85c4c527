"""Printable page of a certificate."""

import math
from typing import Any

from pine_engine.invariance.certificate import Certificate
from pine_engine.invariance.platform_facts import ASPECTS
from pine_engine.methods.table import METHODS, Method
from viz.drawing.identity import document_segment
from viz.drawing.markup import figure_styles, render
from viz.drawing.text import format_difference, format_value


def certificate_page(certificate: Certificate) -> str:
    """Render the certificate as an HTML document without scripts, which needs no other file."""
    rows = []
    for index, order in enumerate(certificate.orders):
        documents = [document_segment(document, slot) for slot, document in enumerate(order)]
        rows.append((documents, [format_value(result.logprobs[index]) for result in certificate.results]))
    return render(
        "certificate.html",
        certificate=certificate,
        request=certificate.request,
        facts=[(name, getattr(certificate.platform, field) or "unknown") for field, name in ASPECTS.items()],
        styles=figure_styles(),
        results=[(METHODS[result.method], result) for result in certificate.results],
        orders=certificate.orders,
        documents=[(document_segment(i, i), one) for i, one in enumerate(certificate.request.documents)],
        rows=rows,
        order_text=_describe_orders(certificate),
        verdict=_verdict,
        difference=format_difference,
    )


def _verdict(method: Method, result: Any) -> str:
    """Return the conclusion of a method's results in a few words."""
    if method.is_order_invariant:
        return "invariant ✓" if result.bitwise_identical else "invariance violated ✗"
    return "no change observed" if result.bitwise_identical else "changed"


def _describe_orders(certificate: Certificate) -> str:
    if certificate.seed is not None:
        return f"input order and random orders, seed {certificate.seed}"
    count = math.factorial(len(certificate.request.documents))
    return "all orders" if len(certificate.orders) == count else f"first of {count:,} orders"
