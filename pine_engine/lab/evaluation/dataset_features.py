"""Types of the columns of records, for the library datasets."""

from typing import Any

from pine_engine.lab.evaluation.record import Record
from pine_engine.optional_packages import import_extra


def record_features() -> Any:
    """Return `datasets.Features` of the files of records.

    Without them `datasets` takes the types from the first file, and refuses the others if a column is null in
    all of its records, or if its examples have other choices.

    Raises:
        InputError: `datasets` is not installed.
    """
    datasets = import_extra("datasets", "datasets")
    scalars = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}

    def feature(schema: dict[str, Any]) -> Any:
        kind = schema["type"]
        if kind == "array":
            return datasets.List(feature(schema["items"]))
        return datasets.Json() if kind == "object" else datasets.Value(scalars[kind])

    columns = Record.model_json_schema()["properties"].items()
    return datasets.Features({name: feature(schema.get("anyOf", [schema])[0]) for name, schema in columns})
