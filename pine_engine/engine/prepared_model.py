"""The networks of an engine, kept up to date with the model whose weights they share."""

import threading
from dataclasses import replace

from torch import nn
from transformers import PreTrainedModel

from pine_engine.attention.probe import prove
from pine_engine.engine.model_thread import compute_on
from pine_engine.engine.promise import find_caveat
from pine_engine.models.packed import PackedWeight, pack
from pine_engine.network.model_snapshot import ModelSnapshot
from pine_engine.network.wiring import Wiring


class PreparedModel:
    """A model, and the networks over its weights that have been validated against the model.

    The networks share the parameters of the model. Modules and adapter state are copies, and weights in 4
    bits are packed once, so both go out of date when the user changes the model.

    Attributes:
        caveat: See Engine.
    """

    caveat: str | None
    _packed: dict[nn.Parameter, PackedWeight]
    _wirings: tuple[Wiring, ...]

    def __init__(self, model: PreTrainedModel, name: str, *, four_bit: bool) -> None:
        """Raises ModelError if the model is not supported."""
        self._model = model
        self._name = name
        self._four_bit = four_bit
        self._lock = threading.Lock()
        self._snapshot = ModelSnapshot.of(model)
        self._prepare()

    def wirings(self) -> tuple[Wiring, ...]:
        """Return the networks, after an update if the model has changed since the last call.

        The objects are new after every change, so that no prefix cache mixes states of old and new weights.
        Raises ModelError if the changed model is not supported.
        """
        if not ModelSnapshot.of(self._model).is_same(self._snapshot):
            with self._lock:
                self._update()
        return self._wirings

    def _update(self) -> None:
        snapshot = ModelSnapshot.of(self._model)
        if snapshot.is_same(self._snapshot):  # updated by another thread
            return
        if not snapshot.has_same_structure(self._snapshot):
            self._prepare()
        else:
            compute_on(self._model.device, self._repack)
            self._wirings = tuple(replace(wiring) for wiring in self._wirings)
        self._snapshot = snapshot

    def _repack(self) -> None:
        for weight, packed in self._packed.items():
            packed.update(weight)

    def _prepare(self) -> None:
        def work() -> tuple[dict[nn.Parameter, PackedWeight], tuple[Wiring, ...], str | None]:
            packed = pack(self._model) if self._four_bit else {}
            wirings = prove(self._model, packed)
            vocabulary = self._model.config.get_text_config().vocab_size
            return packed, wirings, find_caveat(wirings, self._name, vocabulary)

        self._packed, self._wirings, self.caveat = compute_on(self._model.device, work)
