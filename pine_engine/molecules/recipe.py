"""The recipe of a training: every number that its weights depend on."""

from dataclasses import dataclass

from pine_engine.errors import InputError


@dataclass(frozen=True)
class Recipe:
    """All that the weights depend on, apart from the data.

    hidden, intermediate: widths; heads must divide hidden into even parts. jitter and spelling: see
    TrainingBatches. exam_every: steps between two measurements of the held-out loss; the weights of the
    lowest are kept.
    """

    steps: int
    batch_size: int = 32
    learning_rate: float = 1.5e-3
    seed: int = 0
    hidden: int = 128
    intermediate: int = 384
    layers: int = 6
    heads: int = 4
    jitter: float = 0.03
    spelling: float = 0.5
    exam_every: int = 100

    def __post_init__(self) -> None:
        """Raises InputError for sizes that no model can have."""
        for name in ("steps", "batch_size", "hidden", "intermediate", "layers", "heads", "exam_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give 1 or more")
        if self.hidden % (2 * self.heads):
            raise InputError(
                f"{self.heads} heads do not divide a width of {self.hidden} into even parts; give a multiple "
                f"of {2 * self.heads}"
            )
        if not (self.learning_rate > 0 and self.jitter >= 0 and 0 <= self.spelling <= 1):
            raise InputError(
                f"learning rate {self.learning_rate}, jitter {self.jitter} and share of other spellings "
                f"{self.spelling} must be above 0, at least 0, and from 0 to 1"
            )
