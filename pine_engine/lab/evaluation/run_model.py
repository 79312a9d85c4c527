"""Model of a run, as its settings name it: a loaded one, or one behind an address."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pine_engine.endpoint import ENDPOINT
from pine_engine.invariance.platform_facts import Platform
from pine_engine.scheduling.work import Work


@dataclass(frozen=True)
class RunModel:
    """Model that was loaded for a run.

    Attributes:
        platform: Model, hardware and software.
        address: Hub id, folder or file of the model, or address of a server.
        extra_body: Further fields of the requests to a server.
    """

    platform: Platform
    address: str
    extra_body: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Computer of the answers, in words."""
        return f"{self.platform.device}, {self.platform.hardware}, threads: {self.platform.threads}"

    @property
    def options(self) -> dict[str, str | None]:
        """Options of `evaluate` that select the model; None for an option that is left out."""
        return {"model": self.address, "dtype": self.platform.dtype, "device": self.platform.device}

    def predictive(self, work: Work) -> Work:
        """Return completed work with the times that predict those of later work."""
        return work


class ServedModel(RunModel):
    """Model behind an address."""

    @property
    def place(self) -> str:
        """Address of the server, whose hardware is not known."""
        return self.address

    @property
    def options(self) -> dict[str, str | None]:
        """Options of `evaluate` that select server and model, and the fields of the requests."""
        extra_body = json.dumps(self.extra_body) if self.extra_body else None
        return {"endpoint": self.address, "model": self.platform.model, "extra-body": extra_body}

    def predictive(self, work: Work) -> Work:
        """Return the work without times: those of a server say nothing about later ones."""
        return replace(work, prefill_s=0, decode_s=0)


def model_of(platform: Platform, address: str, extra_body: Mapping[str, Any]) -> RunModel:
    """Return the model of a run."""
    kind = ServedModel if platform.device == ENDPOINT else RunModel
    return kind(platform, address, extra_body)
