"""Self-test: order invariance on the hardware, dtype and model in use (docs/exactness.md)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine.attention.forward import batch_caches
from pine_engine.attention.state import SequenceState, input_device
from pine_engine.benchmark.shapes import DEMANDING, MARK, synthetic_model, vocab_size_of
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.order_results import OrderStats
from pine_engine.invariance import kernel_checks as kernels
from pine_engine.invariance.kernel_checks import Check, check_all, join
from pine_engine.methods.table import METHODS
from pine_engine.network.batch_invariant_ops import uses_blocks
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import sample_orders

NEW_TOKENS = 2  # tokens decoded in each order of a prompt

TINY = "random:tiny"

MIXED_PROMPTS = ("documents of many lengths", "a prompt of a few tokens")
"""Prompts of all models: the first has documents of one token, of equal length, and duplicates too."""

INVARIANT = [method.name for method in METHODS.values() if method.is_order_invariant]
PUBLISHED = [name for name in INVARIANT if METHODS[name].role == "method"]

STACKED_METHODS = ("pcw", "pine")
"""Methods whose decode attention is tested: the model's own positions, and ranked documents."""


def plan_checks(engine: Engine, *, shuffles: int = 5, seed: int = 0) -> list[Callable[[], Check]]:
    """Return all checks, to be called one after the other.

    Besides the model of the engine, tiny random models are tested: a plain one, one with exact ties of
    importance, and one of each shape that has broken invariance before. A model that runs as it is has its
    own layers, so that those of the tiny model are tested, and only methods that fit.
    """
    device, dtype = input_device(engine.model), engine.model.dtype
    make = partial(synthetic_model, dtype=engine.dtype, device=str(device))
    tiny = Engine(make(TINY), name="tiny model", decode_in_4bit=engine.decode_in_4bit)
    hard = [Engine(make(MARK + shape), name=f"tiny model, {label}") for shape, label in DEMANDING.items()]
    tied = Engine(without_keys(make(TINY)), decode_in_4bit=engine.decode_in_4bit)
    network = (tiny if engine.placement_problem else engine).patched_models[0].network
    linear_layers = kernels.linear_layers(network)
    networks = (*(model.patched_models[0].network for model in hard), network)
    experts = [layer for each in networks for layer in kernels.expert_layers(each)]
    if uses_blocks(dtype, device):
        linear_layers += kernels.in_decode_steps(linear_layers)
        experts += kernels.in_decode_steps(experts)
    layers = {
        "linear layers": (linear_layers, kernels.GEMM_ROWS),
        "activations and norms": (kernels.elementwise_layers(network), kernels.ELEMENTWISE_ROWS),
    }
    checks: list[Callable[[], Check]] = [
        *(partial(kernels.check_rows, name, *rows, dtype, device) for name, rows in layers.items()),
        partial(kernels.check_experts, experts, dtype, device),
        partial(kernels.check_fused_attention, dtype, device),
        partial(kernels.check_determinism, dtype, device),
    ]
    if engine.decode_in_4bit:
        checks.append(partial(kernels.check_packed, kernels.linear_layers(network, is_packed=True)))
    orders = {"shuffles": shuffles, "seed": seed}
    for model in (tiny, *hard, engine):
        layouts = prompts(vocab_size_of(model))
        # The kernels of a shape are tested with a mixture; the order of sums is that of the tiny model.
        methods, labels = (INVARIANT, layouts) if model is tiny else (PUBLISHED, MIXED_PROMPTS)
        if model.placement_problem:
            methods = [method.name for method in model.methods if method.is_order_invariant]
        for label in labels:
            name = f"{model.model_name}: {label}"
            checks.append(partial(check_orders, model, layouts[label], methods, name, **orders))
        if not model.placement_problem:
            checks += [partial(check_batch_neighbors, model), partial(check_stacking, model)]
    checks += [partial(check_control, model, seed=seed) for model in (tiny, engine)]
    layout = prompts(vocab_size_of(tiny))["documents of equal length"]
    name = "tiny model: exact ties of importance"
    checks.append(partial(check_orders, tied, layout, INVARIANT, name, **orders))
    return checks


def check_orders(
    engine: Engine, layout: TokenLayout, methods: Sequence[str], name: str, *, shuffles: int, seed: int = 0
) -> Check:
    """Check that all logits of order-invariant methods are bitwise identical in all orders of a prompt."""
    summaries = _shuffle(engine, layout, methods, shuffles, seed)
    changed = {method: summary for method, summary in summaries.items() if not summary.bitwise_identical}
    failed = [f"{method} (up to {summary.max_abs_logit_diff:.1e})" for method, summary in changed.items()]
    (num_orders,) = {summary.orders for summary in summaries.values()}
    scope = f"{len(methods)} methods, {num_orders} orders, {layout.num_tokens} tokens"
    meaning = "the output does not depend on the order of the documents"
    return check_all(name, failed, scope=scope, meaning=meaning)


def check_control(engine: Engine, *, seed: int = 0) -> Check:
    """Check that vanilla changes: without a change, the checks of orders could not fail."""
    layout = prompts(vocab_size_of(engine))["documents of many lengths"]
    summary = _shuffle(engine, layout, ["vanilla"], 2, seed)["vanilla"]
    name, found = "control, vanilla changes", f"max |Δ logit| {summary.max_abs_logit_diff:.1e}"
    meaning = "the self-test can detect a dependence on the order"
    return Check(f"{engine.model_name}: {name}", not summary.bitwise_identical, found, meaning)


@torch.inference_mode()
def check_batch_neighbors(engine: Engine) -> Check:
    """Check that a decode step is bitwise identical for other sequences, indices and sizes of the batch."""
    layouts = list(prompts(vocab_size_of(engine)).values())[:3]
    one, two, three = _prefill(engine, "pine", layouts)
    # A pass leaves None out, except for one that makes a single sequence a batch of two.
    batches: list[list[SequenceState | None]] = [[one, two], [two, one], [three, two, one]]
    batches += [[None, three, None, one, two], [one, None]]
    logits = [_decode_step(batch)[batch.index(one)] for batch in batches]
    failed = [
        f"batch {index} (up to {(other - logits[0]).abs().max():.1e})"
        for index, other in enumerate(logits)
        if not torch.equal(other, logits[0])
    ]
    scope = f"{len(batches)} batches of 1 to {len(layouts)} sequences"
    meaning = "an answer does not depend on the other answers of its batch"
    return check_all(f"{engine.model_name}: batch neighbors", failed, scope=scope, meaning=meaning)


@torch.inference_mode()
def check_stacking(engine: Engine) -> Check:
    """Check that a decode step is bitwise identical for stacked and single sequences and all thread counts.

    A shuffle test decodes several orders of one prompt as one stack, and the number of threads may change
    between two layers.
    """
    layout = prompts(vocab_size_of(engine))["documents of many lengths"]
    orders = [layout.reorder(order) for order in sample_orders(layout.num_documents, 2, seed=0)]
    thread_counts = sorted({1, torch.get_num_threads()})
    failed = []
    for method in STACKED_METHODS:
        rows = _prefill(engine, method, orders)
        with torch_num_threads(1):
            expected = torch.cat([_decode_step([row, None])[:1] for row in rows])
        batch_caches(rows)
        batches: list[list[SequenceState | None]] = [[*rows], *([row, None] for row in rows)]
        for batch in batches:
            indices = [rows.index(row) for row in batch if row]
            for threads in thread_counts:
                with torch_num_threads(threads):
                    logits = _decode_step(batch)[: len(indices)]
                if not torch.equal(logits, expected[indices]):
                    failed.append(f"{method}, sequences {join(indices)}, {threads} threads")
    scope = f"1 and {len(orders)} sequences, {join(thread_counts)} threads"
    meaning = "attention of a sequence does not depend on stacked sequences or the number of threads"
    return check_all(f"{engine.model_name}: stacked sequences", failed, scope=scope, meaning=meaning)


def _prefill(engine: Engine, method: str, layouts: Sequence[TokenLayout]) -> list[SequenceState]:
    options = passes.PassOptions(engine.patched_models, reserved_tokens=1)
    return [passes.prefill(layout, METHODS[method], options)[0] for layout in layouts]


def _decode_step(rows: Sequence[SequenceState | None]) -> Tensor:
    """Return the logits (rows, V) of one decode step, after which the rows are as before."""
    logits = passes.extend(rows, [[5]] * len(rows), is_step=True)[:, 0]
    for row in filter(None, rows):
        row.cache.truncate(row.cache.length - 1)
    return logits


def prompts(vocabulary: int) -> dict[str, TokenLayout]:
    """Return prompts of random tokens by label."""
    generator = torch.Generator().manual_seed(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

    def prompt(prefix: int, lengths: Sequence[int], suffix: int) -> TokenLayout:
        return TokenLayout(ids(prefix), tuple(ids(length) for length in lengths), ids(suffix))

    twice = ids(11)
    mixed = (ids(7), ids(40), twice, ids(3), ids(11), ids(1), twice)
    layouts = {
        "documents of many lengths": TokenLayout(ids(9), mixed, ids(6)),
        "documents of equal length": prompt(9, (12, 12, 12, 12), 6),
        "duplicate documents": TokenLayout(ids(9), (twice, ids(8), twice, ids(11), twice), ids(6)),
        "documents of one token": prompt(9, (1, 1, 14, 1), 6),
        "a prompt of a few tokens": prompt(1, (2, 1, 3), 2),
    }
    return {
        label: replace(layout, scores=tuple(float(slot % 3) for slot in range(layout.num_documents)))
        for label, layout in layouts.items()
    }


def without_keys(model: PreTrainedModel) -> PreTrainedModel:
    """Set all keys to zero: all scores are then 0, and documents of equal length are exactly tied."""
    for name, module in model.named_modules():
        if name.endswith("k_proj"):
            nn.init.zeros_(module.weight)
    return model


def _shuffle(
    engine: Engine, layout: TokenLayout, methods: Sequence[str], shuffles: int, seed: int
) -> dict[str, OrderStats]:
    orders = sample_orders(layout.num_documents, shuffles, seed)
    shuffled = engine.shuffle(
        layout, methods=methods, orders=orders, max_new_tokens=NEW_TOKENS, stop_at_eos=False
    )
    return shuffled.summary
