"""How far weights in 4 bits move what a model says, against float32: good to know, and no promise."""

import torch

from pine_engine.attention.state import Row
from pine_engine.engine import passes
from pine_engine.engine.asking import asked_prompt
from pine_engine.engine.engine import Engine
from pine_engine.invariance.kernels import Check
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.tasks import USUAL_TASK

DOCUMENTS = (
    "The ferry to the island leaves at nine and at three, from the old pier behind the market.",
    "Tickets are sold in the harbour office, which is closed on Mondays.",
    "Last year the café on the island burned down; since then visitors bring their own lunch.",
)
QUESTION = "How does one get to the island, and what should one bring?"
TEXT = (
    " Take the ferry at nine in the morning or at three in the afternoon from the old pier. You can buy your "
    "ticket in the harbour office, but not on a Monday. Bring something to eat, because there is no café any "
    "more."
)
"""A text that is read token by token behind the prompt; which one does not matter, but it is language."""


@torch.inference_mode()
def check_packed_distance(engine: Engine) -> Check:
    """A text fed step by step with weights in 4 bits, and the same tokens in one pass in float32.

    engine: one that writes in 4 bits.
    """
    layout, ids = _prompt_and_text(engine)
    row, _ = passes.prefill(engine.wirings, layout, METHODS["vanilla"], room=len(ids), rows_kept=1)
    other = Row(row.state, row.cache.copy())
    packed = torch.cat([passes.extend([row], [[token]], is_step=True)[0] for token in ids])
    whole = passes.extend([other], [ids])[0]
    moved = (packed - whole).abs()
    mean, most = moved.mean(), moved.max()
    logprobs = torch.stack([logits.log_softmax(-1) for logits in (packed, whole)])
    given = logprobs[:, range(len(ids) - 1), ids[1:]]
    same = int((packed.argmax(-1) == whole.argmax(-1)).sum())
    return Check(
        "weights in 4 bits against float32",
        is_promised=False,
        holds=True,
        found=f"{len(ids)} steps: logits differ by {mean:.2f} in the mean, {most:.2f} at most; "
        f"log-probabilities of the next token by {(given[0] - given[1]).abs().max():.2f} nats at most; the "
        f"most likely token is the same in {same}",
        meaning="where two words are nearly as likely, an answer can be another than in float32",
    )


def _prompt_and_text(engine: Engine) -> tuple[TokenLayout, tuple[int, ...]]:
    """Tokens of the prompt and of the text; numbers in turn for a model without a tokenizer."""
    if engine.tokenizer is None:
        return TokenLayout((1, 2), ((3, 4), (5, 6)), (7,)), tuple(range(1, 33))
    prompt = asked_prompt(engine.tokenizer, None, QUESTION, DOCUMENTS, USUAL_TASK, "", "")
    return engine.tokenize(prompt), engine.tokenize_answer(TEXT)
