"""Options that determine the weights of the molecule model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """Options that determine the weights, apart from the data. The defaults are those of the shipped model.

    Attributes:
        steps: Number of optimizer steps.
        batch_size: Examples per step.
        learning_rate: Maximum learning rate.
        seed: Seed of weights, orders, noise and random SMILES.
        hidden_size: Hidden size, a multiple of twice the number of heads.
        intermediate_size: Size of the feed-forward layers.
        layers: Number of layers.
        heads: Number of heads.
        noise_std: Standard deviation of the noise of a value, in standard deviations of its property.
        random_smiles_prob: Fraction of the examples with a random instead of the canonical SMILES.
        eval_every: Steps between two measurements of the held-out loss. The best weights are kept.
    """

    steps: int = 3590
    batch_size: int = 32
    learning_rate: float = 1.5e-3
    seed: int = 0
    hidden_size: int = 128
    intermediate_size: int = 384
    layers: int = 6
    heads: int = 4
    noise_std: float = 0.03
    random_smiles_prob: float = 0.5
    eval_every: int = 100
