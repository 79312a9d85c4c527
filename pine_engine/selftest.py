"""What exactness rests on, checked on the hardware, the dtype and the model at hand (docs/exactness.md)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedModel

from pine_engine.engine import ALIKE_ROWS, BATCH_ROWS, Engine
from pine_engine.invariance import OrderCell, OrderRow, compare_orders, orders_to_try, summarize
from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS, Method
from pine_engine.state import input_device
from pine_engine.synthetic import synthetic_model

ROW_COUNTS = (*range(1, 17), 64, 300)
"""Rows of the matrix products tried: all small numbers, and two as prompts have them."""

PROMPT_COUNTS = (12, 13, 64, 101, 300, 301)
"""Rows of activations and norms tried: prompts of even and odd length."""

EVEN = "every row has the same bits in every place"

NEW_TOKENS = 4
"""Tokens decoded in each order of a prompt."""

TINY = "random:tiny"


@dataclass(frozen=True)
class Check:
    """What was found.

    is_promised: exactness rests on it; False for what is only good to know. found: in words, with numbers.
    meaning: what it means that it holds, or that it does not.
    """

    name: str
    is_promised: bool
    holds: bool
    found: str
    meaning: str

    @property
    def verdict(self) -> str:
        """In a word, for tables."""
        if not self.is_promised:
            return "info"
        return "pass" if self.holds else "FAIL"


def plan_checks(engine: Engine, *, shuffles: int = 5, seed: int = 0) -> list[Callable[[], Check]]:
    """All checks, to be called one after the other.

    shuffles: orders tried of each prompt besides its first. Two tiny models with random weights are made in
    the engine's dtype, on its device, for what the given model may not show.
    """
    device = input_device(engine.model)
    tiny = Engine(synthetic_model(TINY, dtype=engine.dtype, device=str(device)), name="tiny model")
    counts_fed = sorted({engine.rows_alike(count) for count in PROMPT_COUNTS})
    checks: list[Callable[[], Check]] = [
        partial(check_products, linear_layers(engine.model), engine.model.dtype, device),
        partial(check_small_products, linear_layers(engine.model), engine.model.dtype, device),
        partial(check_rowwise, rowwise_layers(engine.model), counts_fed, engine.model.dtype, device),
        partial(check_fused_attention, engine.model.dtype, device),
        partial(check_padded_attention, engine.model.dtype, device),
        partial(check_repeats, engine.model.dtype, device),
    ]
    promising = [method for method in METHODS.values() if method.promises_invariance]
    published = [method for method in promising if method.role == "method"]
    for model, methods in ((tiny, promising), (engine, published)):
        for words, layout in prompts(vocabulary_of(model)).items():
            name = f"{model.model_name}: {words}"
            checks.append(partial(check_orders, model, layout, methods, name, shuffles=shuffles, seed=seed))
        checks.append(partial(check_control, model, seed=seed))
    name = "tiny model: exact ties of importance"
    layout = prompts(vocabulary_of(tiny))["documents of equal length"]
    tied = Engine(without_keys(synthetic_model(TINY, dtype=engine.dtype, device=str(device))))
    checks.append(partial(check_orders, tied, layout, promising, name, shuffles=shuffles, seed=seed))
    return checks


@dataclass(frozen=True)
class RowLayer:
    """A part of the model that computes every row on its own: (rows, width) to (rows, ...)."""

    name: str
    width: int
    function: Callable[[Tensor], Tensor]


def linear_layers(model: nn.Module) -> list[RowLayer]:
    """One linear layer of the model for each shape."""
    by_shape: dict[tuple[int, int, bool], RowLayer] = {}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            shape = (module.in_features, module.out_features, module.bias is not None)
            by_shape.setdefault(shape, RowLayer("linear layer", module.in_features, module))
    return list(by_shape.values())


def rowwise_layers(model: nn.Module) -> list[RowLayer]:
    """One norm of each kind and width; one activation of each kind, at the width that the MLP has or, where
    the configuration has none, at every width of linear layers."""
    stated = getattr(model, "config", None) and getattr(model.config, "intermediate_size", None)
    widths = [stated] if stated else sorted({layer.width for layer in linear_layers(model)})
    layers: dict[tuple[str, int], RowLayer] = {}
    for module in model.modules():
        name = type(module).__name__
        weight = getattr(module, "weight", None)
        if name.endswith("Norm") and weight is not None:
            layers.setdefault((name, weight.numel()), RowLayer(name, weight.numel(), module))
        elif type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation"):
            for width in widths:
                layers.setdefault((name, width), RowLayer(name, width, module))
    return list(layers.values())


def relied_counts() -> list[int]:
    """The row counts of ROW_COUNTS in which the engine feeds tokens whose place depends on the order."""
    return [count for count in ROW_COUNTS if count >= ALIKE_ROWS or count % BATCH_ROWS == 0]


@torch.inference_mode()
def uneven_counts(
    layers: Iterable[RowLayer], counts: Sequence[int], dtype: torch.dtype, device: torch.device
) -> list[int]:
    """Those row counts for which, in any of the layers, a row gives other bits in another place."""
    uneven = set()
    for layer in layers:
        for count in counts:
            given = _random((count, layer.width), dtype, device)
            result = layer.function(given)
            for order in _reorderings(count):
                if not torch.equal(layer.function(given[order]), result[order]):
                    uneven.add(count)
    return sorted(uneven)


def check_products(layers: Sequence[RowLayer], dtype: torch.dtype, device: torch.device) -> Check:
    """Matrix products of the model's own shapes, for the row counts that the engine uses."""
    uneven = uneven_counts(layers, relied_counts(), dtype, device)
    return Check(
        "matrix products as the engine makes them",
        is_promised=True,
        holds=not uneven,
        found=_places(uneven, relied_counts(), len(layers)),
        meaning="a token's states do not depend on its place in the prompt"
        if not uneven
        else "a token's states depend on its place in the prompt, so that shuffling changes bits; "
        "another dtype, or another build of torch, may be free of it",
    )


def check_small_products(layers: Sequence[RowLayer], dtype: torch.dtype, device: torch.device) -> Check:
    """The same for the row counts that the engine avoids."""
    avoided = [count for count in ROW_COUNTS if count not in relied_counts()]
    uneven = uneven_counts(layers, avoided, dtype, device)
    return Check(
        "matrix products of few rows",
        is_promised=False,
        holds=not uneven,
        found=_places(uneven, avoided, len(layers)),
        meaning="the engine would not have to fill up short prompts here"
        if not uneven
        else f"so the engine fills up shorter prompts to {ALIKE_ROWS} tokens",
    )


@torch.inference_mode()
def check_rowwise(
    layers: Sequence[RowLayer], counts_fed: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Check:
    """Activations and norms of the model, at the widths it has them and the row counts that it is fed."""
    uneven = []
    for layer in layers:
        counts = uneven_counts([layer], counts_fed, dtype, device)
        uneven += [f"{layer.name} of {count} x {layer.width}" for count in counts]
    threads = torch.get_num_threads()
    return Check(
        "activations and norms",
        is_promised=True,
        holds=not uneven,
        found=f"{len(layers)} activations and norms, {_listed(counts_fed)} rows, {threads} threads: "
        + (f"a row's bits depend on its place in {_listed(uneven)}" if uneven else EVEN),
        meaning="what is computed token by token does not know the place of the token"
        if not uneven
        else "torch cuts the work into one part a thread and computes the end of each part in another way; "
        "set OMP_NUM_THREADS to 1, 2 or 4, or use bfloat16",
    )


@torch.inference_mode()
def check_fused_attention(dtype: torch.dtype, device: torch.device) -> Check:
    """Fused attention of one document, cut from a longer prompt at several places."""
    uneven = []
    for length, front in ((1, 5), (7, 30), (23, 5), (140, 30)):
        query, key, value = _random((3, 4, length, 32), dtype, device)
        prefix = _random((2, 4, front, 32), dtype, device)
        outputs = []
        for place in (0, 1, 13, 64):
            long = torch.zeros(3, 4, place + length + 9, 32, dtype=dtype, device=device)
            long[:, :, place : place + length] = torch.stack((query, key, value))
            cut_query, cut_key, cut_value = long[:, :, place : place + length]
            keys = torch.cat((prefix[0], cut_key), dim=1)
            values = torch.cat((prefix[1], cut_value), dim=1)
            mask = torch.ones(length, front + length, dtype=torch.bool, device=device).tril(front)
            outputs.append(_attend(cut_query, keys, values, mask))
        if not all(torch.equal(output, outputs[0]) for output in outputs):
            uneven.append(length)
    return Check(
        "fused attention of a document wherever it stands",
        is_promised=True,
        holds=not uneven,
        found="the same bits at every place"
        if not uneven
        else f"other bits at another place for documents of {_listed(uneven)} tokens",
        meaning="a document is read alike wherever it stands in the prompt"
        if not uneven
        else "a document is read differently at another place in the prompt",
    )


@torch.inference_mode()
def check_padded_attention(dtype: torch.dtype, device: torch.device) -> Check:
    """Fused attention of documents in a batch, padded to the longest, against each on its own."""
    lengths = (7, 23, 140)
    longest = max(lengths)
    given = [_random((3, 4, length, 32), dtype, device) for length in lengths]
    batch = torch.stack([pad(part, (0, 0, 0, longest - part.shape[2])) for part in given], dim=1)
    mask = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    together = scaled_dot_product_attention(batch[0], batch[1], batch[2], attn_mask=mask)
    uneven = []
    for index, (length, (query, key, value)) in enumerate(zip(lengths, given, strict=True)):
        alone = _attend(query, key, value, mask[:length, :length])
        if not torch.equal(together[index, :, :length], alone):
            uneven.append(length)
    return Check(
        "fused attention of a padded batch of documents",
        is_promised=False,
        holds=not uneven,
        found="the bits of each document on its own"
        if not uneven
        else f"other bits than on its own for documents of {_listed(uneven)} among {_listed(lengths)} tokens",
        meaning="documents could be read in one padded batch"
        if not uneven
        else "the engine reads each document in a call of its own",
    )


@torch.inference_mode()
def check_repeats(dtype: torch.dtype, device: torch.device) -> Check:
    """The same work three times: no sum may be taken in whatever order threads finish."""
    query, key, value = _random((3, 8, 300, 64), dtype, device)
    slots = torch.randint(300, (300,), generator=torch.Generator().manual_seed(1)).to(device)
    work: dict[str, Callable[[], Tensor]] = {
        "fused attention": lambda: _attend(query, key, value, None),
        "matrix product": lambda: query[0] @ key[0].T,
        "batched product": lambda: query @ key.mT,
        "sum of all": lambda: query.sum(),
        "running sum": lambda: query.cumsum(-1),
        "rows by index": lambda: key.index_select(1, slots),
        "sorting": lambda: torch.argsort(query, dim=-1, descending=True, stable=True),
    }
    changed = []
    for name, compute in work.items():
        first = compute()
        if not all(torch.equal(compute(), first) for _ in range(2)):
            changed.append(name)
    return Check(
        "the same work twice",
        is_promised=True,
        holds=not changed,
        found=f"other bits the next time: {_listed(changed)}" if changed else "the same bits every time",
        meaning="threads do not decide the order of sums"
        if not changed
        else "results change from run to run without any shuffle; see torch.use_deterministic_algorithms",
    )


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
    rows = list(_cells(engine, layout, [method.name for method in methods], shuffles, seed))
    summaries = summarize(rows)
    broken = [
        f"{method} (up to {summary.max_abs_logit_diff:.1e})"
        for method, summary in summaries.items()
        if not summary.bitwise_equal
    ]
    return Check(
        name,
        is_promised=True,
        holds=not broken,
        found=f"{len(methods)} methods, {len(rows)} orders, {layout.num_tokens} tokens: "
        + (f"changed: {_listed(broken)}" if broken else "all logits equal to the last bit"),
        meaning="the order of the documents changes nothing"
        if not broken
        else "the order of the documents changes logits",
    )


def check_control(engine: Engine, *, seed: int = 0) -> Check:
    """The control: vanilla must change, or the checks of orders could not see anything."""
    layout = prompts(vocabulary_of(engine))["documents of many lengths"]
    summary = summarize(list(_cells(engine, layout, ["vanilla"], 2, seed)))["vanilla"]
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
        f"a prompt of fewer than {ALIKE_ROWS} tokens": prompt(1, (2, 1, 3), 2),
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


def _cells(
    engine: Engine, layout: TokenLayout, methods: Sequence[str], shuffles: int, seed: int
) -> Iterator[dict[str, OrderCell]]:
    orders = orders_to_try(layout.num_documents, shuffles, seed)
    events = compare_orders(
        engine, layout, methods=methods, orders=orders, max_new_tokens=NEW_TOKENS, stop_at_end=False
    )
    return (event.cells for event in events if isinstance(event, OrderRow))


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0]


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Drawn on the CPU in float32, so that the same numbers are tried everywhere.
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def _reorderings(count: int) -> list[Tensor]:
    """Rows backwards, and moved on by one: together they bring every row to other places."""
    rows = torch.arange(count)
    return [rows.flip(0), rows.roll(1)]


def _places(uneven: Sequence[int], tried: Sequence[int], num_layers: int) -> str:
    shapes = f"{num_layers} shapes of linear layers, {_listed(tried)} rows: "
    if uneven:
        return f"{shapes}a row's bits depend on its place with {_listed(uneven)} rows"
    return f"{shapes}{EVEN}"


def _listed(words: Iterable[object]) -> str:
    return ", ".join(map(str, words))
