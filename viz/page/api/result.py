"""Fields that the results of all API endpoints have."""

from typing import Any

from pydantic import BaseModel, Field

from pine_engine.endpoint.repeats import Repeats


def known(description: str) -> Any:
    """Return a field that is left out if it is not known."""
    return Field(default=None, description=description, exclude_if=lambda value: value is None)


class ApiResult(BaseModel):
    """Fields of every result."""

    model: str = Field(description="Model name.")
    dtype: str = Field(description="Model dtype, such as float32.")
    repeated: Repeats | None = known("Requests to an endpoint that were sent twice, and changed answers.")
    stop_reason: str | None = Field(default=None, description="Reason for an early stop; null if complete.")
