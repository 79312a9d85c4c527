"""The card of a trained model: what it is, what it was made from, how good it is, how to make it again."""

from dataclasses import dataclass

from pine_engine.molecules.recipe import Recipe
from pine_engine.molecules.rows import PROPERTIES


@dataclass(frozen=True)
class Facts:
    """What the card says.

    held_out_loss: of the weights as saved, in nats per token. valid: share of the held-out requests that the
    model answers with a molecule. data: the file's name; sources: as its rows name them.
    """

    recipe: Recipe
    command: str
    data: str
    data_sha256: str
    sources: tuple[str, ...]
    num_learned: int
    num_held_out: int
    num_left_out: int
    num_parameters: int
    size_bytes: int
    best_step: int
    held_out_loss: float
    valid: float


def card(facts: Facts) -> str:
    """The card as Markdown."""
    recipe = facts.recipe
    names = ", ".join(f"`{name}` ({unit})" for name, unit in PROPERTIES.items())
    epochs = recipe.steps * recipe.batch_size / facts.num_learned
    return f"""# A small model that writes molecules

Given six properties, it writes the SMILES of a molecule that should have them: {names}.
It is for showing what the order of a prompt's parts does to an answer, and for nothing else: what it writes
may be unstable, poisonous or no molecule at all.

    python -m pine_engine compare FILE.json --model FOLDER

where FILE.json holds `"task": "qm9"` and a document for each property, its title the name and its text the
value. What the model reads is `<s>gap*7.86* homo*-5.87* ...<smiles>`, the items in any order.

| | |
| --- | --- |
| architecture | Llama: {recipe.layers} layers, {recipe.heads} heads, width {recipe.hidden}, \
feed-forward {recipe.intermediate} |
| parameters | {facts.num_parameters:,}, saved as float16 ({facts.size_bytes / 1e6:.1f} MB) |
| data | {"; ".join(facts.sources)}: `{facts.data}`, SHA-256 `{facts.data_sha256}` |
| licence | that of the data, for the weights too |
| learned from | {facts.num_learned:,} molecules: half of the file by a hash of the SMILES, less \
{facts.num_held_out:,} held out |
| never seen | the {facts.num_left_out:,} of the other half, from which properties are predicted |
| training | {recipe.steps:,} steps of {recipe.batch_size} examples ({epochs:.1f} epochs); the weights are \
those after step {facts.best_step:,}, where the held-out loss was lowest |
| held-out loss | {facts.held_out_loss:.3f} nats per token of the canonical SMILES |
| valid | {facts.valid:.1%} of the {facts.num_held_out:,} held-out requests are answered with a molecule \
(greedy, vanilla attention) |

Loss is on the SMILES alone. Properties come in a new random order in every example and epoch, with a noise of
{recipe.jitter:g} of their standard deviation, which is far below what can be told from a SMILES;
{recipe.spelling:.0%} of the examples ask for any spelling of the molecule and are answered with a random one.

Made with

    {facts.command}
"""
