"""Metrics as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families


def metric_values(text: str) -> dict[tuple[str, ...], float]:
    """Return the value of each sample by name and values of its labels."""
    families = text_string_to_metric_families(text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}
