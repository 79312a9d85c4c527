"""What exactness rests on, checked on the hardware, the dtype and the model at hand (docs/exactness.md)."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.decode import put_together
from pine_engine.attention.state import Row, input_device
from pine_engine.benchmark.random_models import DEMANDING, MARK, synthetic_model
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.orders import orders_to_try
from pine_engine.engine.shuffle import ShuffleResult
from pine_engine.invariance.kernels import (
    Check,
    check_fused_attention,
    check_own_products,
    check_packed_products,
    check_padded_attention,
    check_products,
    check_repeats,
    check_rowwise,
    linear_layers,
    listed,
    own_products,
    packed_products,
    rowwise_layers,
)
from pine_engine.invariance.packed_distance import check_packed_distance
from pine_engine.methods.table import METHODS, Method
from pine_engine.network.threads import with_threads
from pine_engine.prompts.layout import TokenLayout

NEW_TOKENS = 4
"""Tokens decoded in each order of a prompt."""

TINY = "random:tiny"

STACKED_METHODS = ("pcw", "pine")
"""Methods whose decode attention is checked: one with the model's own positions, and one that ranks."""


def plan_checks(engine: Engine, *, shuffles: int = 5, seed: int = 0) -> list[Callable[[], Check]]:
    """All checks, to be called one after the other.

    shuffles: orders tried of each prompt besides its first. Tiny models with random weights are made in the
    engine's dtype, on its device, for what the given model may not show: of plain shape, with exact ties of
    importance, and of every shape that has been seen to be hard.
    """
    network, device = engine.wirings[0].network, input_device(engine.model)
    dtype = engine.model.dtype
    make = partial(synthetic_model, dtype=engine.dtype, device=str(device))
    wrap = partial(Engine, four_bit=engine.four_bit)
    tiny = wrap(make(TINY), name="tiny model")
    checks: list[Callable[[], Check]] = [
        partial(check_products, linear_layers(network), dtype, device),
        partial(check_own_products, own_products(network), dtype, device),
        *(_of_packed_weights(engine) if engine.four_bit else []),
        partial(check_rowwise, rowwise_layers(network), dtype, device),
        partial(check_fused_attention, dtype, device),
        partial(check_padded_attention, dtype, device),
        partial(check_repeats, dtype, device),
    ]
    promising = [method for method in METHODS.values() if method.promises_invariance]
    published = [method for method in promising if method.role == "method"]
    hard = [Engine(make(MARK + shape), name=f"tiny model, {words}") for shape, words in DEMANDING.items()]
    of_all = {"shuffles": shuffles, "seed": seed}
    for model, methods in ((tiny, promising), *((model, published) for model in hard), (engine, published)):
        for words, layout in prompts(vocabulary_of(model)).items():
            name = f"{model.model_name}: {words}"
            checks.append(partial(check_orders, model, layout, methods, name, **of_all))
        checks += [partial(check_neighbours, model), partial(check_stacking, model)]
    checks += [partial(check_control, model, seed=seed) for model in (tiny, engine)]
    name = "tiny model: exact ties of importance"
    layout = prompts(vocabulary_of(tiny))["documents of equal length"]
    tied = wrap(without_keys(make(TINY)))
    checks.append(partial(check_orders, tied, layout, promising, name, **of_all))
    return checks


def _of_packed_weights(engine: Engine) -> list[Callable[[], Check]]:
    products = packed_products(engine.wirings[0].network)
    return [partial(check_packed_products, products), partial(check_packed_distance, engine)]


def check_orders(
    engine: Engine,
    layout: TokenLayout,
    methods: Sequence[Method],
    name: str,
    *,
    shuffles: int,
    seed: int = 0,
) -> Check:
    """All logits of methods that promise invariance, under shuffles of one prompt, end to end."""
    shuffled = _shuffle(engine, layout, [method.name for method in methods], shuffles, seed)
    broken = [
        f"{method} (up to {summary.max_abs_logit_diff:.1e})"
        for method, summary in shuffled.summary.items()
        if not summary.bitwise_equal
    ]
    return Check(
        name,
        is_promised=True,
        holds=not broken,
        found=f"{len(methods)} methods, {len(shuffled.rows)} orders, {layout.num_tokens} tokens: "
        + (f"changed: {listed(broken)}" if broken else "all logits equal to the last bit"),
        meaning="the order of the documents changes nothing"
        if not broken
        else "the order of the documents changes logits",
    )


def check_control(engine: Engine, *, seed: int = 0) -> Check:
    """The control: vanilla must change, or the checks of orders could not see anything."""
    layout = prompts(vocabulary_of(engine))["documents of many lengths"]
    summary = _shuffle(engine, layout, ["vanilla"], 2, seed).summary["vanilla"]
    changes = not summary.bitwise_equal
    return Check(
        f"{engine.model_name}: control, vanilla changes",
        is_promised=True,
        holds=changes,
        found=f"largest change of a logit {summary.max_abs_logit_diff:.1e}",
        meaning="a change would be seen"
        if changes
        else "no change is seen at all: these checks show nothing",
    )


@torch.inference_mode()
def check_neighbours(engine: Engine) -> Check:
    """A decoding step of one prompt beside others, at other places and in wider batches, to the last bit."""
    layouts = list(prompts(vocabulary_of(engine)).values())[:3]
    rows = [
        passes.prefill(engine.wirings, layout, METHODS["pine"], room=1, rows_kept=1)[0] for layout in layouts
    ]
    one, two, three = rows
    batches: list[list[Row | None]] = [
        [one, two],
        [two, one],
        [three, two, one],
        [None, three, None, one, two],
        [one, *[None] * 8],
    ]
    steps = []
    for batch in batches:
        logits = passes.extend(batch, [[7] if row is one else [5] for row in batch], is_step=True)
        steps.append(logits[batch.index(one), 0])
        for row in filter(None, batch):
            row.cache.truncate(row.cache.length - 1)
    differing = max((step - steps[0]).abs().max().item() for step in steps)
    holds = all(torch.equal(step, steps[0]) for step in steps)
    return Check(
        f"{engine.model_name}: neighbours in a batch",
        is_promised=True,
        holds=holds,
        found=f"{len(batches)} batches of 2 to 9 rows: "
        + ("the same logits to the last bit" if holds else f"logits differ by up to {differing:.1e}"),
        meaning="an answer does not depend on what is written beside it"
        if holds
        else "what is written beside an answer changes its logits",
    )


@torch.inference_mode()
def check_stacking(engine: Engine) -> Check:
    """Check a decode step of each sequence alone and stacked with others, with one thread and with all.

    A shuffle test decodes several orders of one prompt as one stack, and the number of threads may change
    between two layers; neither may change a bit.

    Args:
        engine: Engine whose attention is checked, at the shapes of its model.
    """
    layout = prompts(vocabulary_of(engine))["documents of many lengths"]
    orders = [layout.reorder(order) for order in orders_to_try(layout.num_documents, 2, seed=0)]
    thread_counts = sorted({1, torch.get_num_threads()})
    differing = []
    for name in STACKED_METHODS:
        rows = [
            passes.prefill(engine.wirings, order, METHODS[name], room=1, rows_kept=1)[0] for order in orders
        ]
        expected = torch.cat([_decode_step([row, None], 1)[:1] for row in rows])
        put_together(rows)
        batches: list[list[Row | None]] = [[*rows], *([row, None] for row in rows)]
        for batch in batches:
            places = [rows.index(row) for row in batch if row]
            differing += [
                f"{name} with {len(places)} sequences and {threads} threads"
                for threads in thread_counts
                if not torch.equal(_decode_step(batch, threads)[: len(places)], expected[places])
            ]
    differing = list(dict.fromkeys(differing))
    return Check(
        f"{engine.model_name}: stacked sequences",
        is_promised=True,
        holds=not differing,
        found=f"1 and {len(orders)} sequences, {listed(thread_counts)} threads: "
        + (f"logits differ for {listed(differing)}" if differing else "logits are bitwise identical"),
        meaning="attention of a sequence does not depend on stacked sequences or the number of threads"
        if not differing
        else "attention of a sequence depends on stacked sequences or the number of threads",
    )


def _decode_step(rows: Sequence[Row | None], threads: int) -> Tensor:
    """Return the logits (rows, V) of one decode step, after which the rows are as before."""
    with with_threads(threads):
        logits = passes.extend(rows, [[5]] * len(rows), is_step=True)[:, 0]
    for row in filter(None, rows):
        row.cache.truncate(row.cache.length - 1)
    return logits


def prompts(vocabulary: int) -> dict[str, TokenLayout]:
    """Prompts of random tokens, by what is special about them."""
    generator = torch.Generator().manual_seed(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

    def prompt(prefix: int, lengths: Sequence[int], suffix: int) -> TokenLayout:
        return TokenLayout(ids(prefix), tuple(ids(length) for length in lengths), ids(suffix))

    twice = ids(11)
    return {
        "documents of many lengths": prompt(9, (7, 40, 3, 23, 16), 6),
        "documents of equal length": prompt(9, (12, 12, 12, 12), 6),
        "duplicate documents": TokenLayout(ids(9), (twice, ids(8), twice, ids(11), twice), ids(6)),
        "documents of one token": prompt(9, (1, 1, 14, 1), 6),
        "a prompt of a few tokens": prompt(1, (2, 1, 3), 2),
    }


def vocabulary_of(engine: Engine) -> int:
    """Number of tokens that the model knows."""
    size: int = engine.model.config.get_text_config().vocab_size
    # Some models have more rows of embedding than tokens.
    return size if engine.tokenizer is None else min(size, len(engine.tokenizer))


def without_keys(model: PreTrainedModel) -> PreTrainedModel:
    """The model with all keys zero: every score is 0, so documents of equal length are exactly tied."""
    for name, module in model.named_modules():
        if name.endswith("k_proj"):
            nn.init.zeros_(module.weight)
    return model


def _shuffle(
    engine: Engine, layout: TokenLayout, methods: Sequence[str], shuffles: int, seed: int
) -> ShuffleResult:
    orders = orders_to_try(layout.num_documents, shuffles, seed)
    return engine.shuffle(
        layout, methods=methods, orders=orders, max_new_tokens=NEW_TOKENS, stop_at_end=False
    )
