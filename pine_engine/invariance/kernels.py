"""What exactness rests on, operation by operation: rows must not know their place, nor work its turn."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad, scaled_dot_product_attention

from pine_engine.attention.arithmetic import copied
from pine_engine.models.packed import PackedWeight, is_packable

ROW_COUNTS = (*range(2, 17), 64, 300)
"""Rows of the matrix products tried: all small numbers, and two as prompts have them."""

PROMPT_COUNTS = (12, 13, 64, 101, 300, 301)
"""Rows of activations and norms tried: prompts of even and odd length."""

DOCUMENTS = ((1, 5), (7, 30), (23, 5), (140, 30))
"""Lengths of documents, and of what stands before them, of which attention is tried."""

HEADS = ((4, 32), (1, 32), (1, 40), (3, 24))
"""Numbers of heads, and their widths."""

EVEN = "every row has the same bits in every place"


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


@dataclass(frozen=True)
class RowLayer:
    """A part of the model that computes every row on its own: (rows, width) to (rows, ...)."""

    name: str
    width: int
    function: Callable[[Tensor], Tensor]


def linear_layers(network: nn.Module) -> list[RowLayer]:
    """One linear layer of the network for each shape."""
    return [RowLayer("linear layer", module.in_features, module) for module in _linear_modules(network)]


def own_products(network: nn.Module) -> list[RowLayer]:
    """The same products as torch makes them."""

    def product(module: nn.Linear) -> Callable[[Tensor], Tensor]:
        return lambda rows: linear(rows, module.weight, module.bias)

    return [
        RowLayer("linear layer", module.in_features, product(module)) for module in _linear_modules(network)
    ]


def packed_products(network: nn.Module) -> list[RowLayer]:
    """The same layers with weights in 4 bits, where they have them in decoding steps."""
    return [
        RowLayer("linear layer", module.in_features, PackedWeight.of(module.weight).multiply)
        for module in _linear_modules(network)
        if is_packable(module)
    ]


def _linear_modules(network: nn.Module) -> Iterable[nn.Linear]:
    by_shape: dict[tuple[int, int, bool], nn.Linear] = {}
    for module in network.modules():
        if isinstance(module, nn.Linear):
            by_shape.setdefault((module.in_features, module.out_features, module.bias is not None), module)
    return by_shape.values()


def rowwise_layers(network: nn.Module) -> list[RowLayer]:
    """One norm of each kind and width; one activation of each kind, at the width that the MLP has or, where
    the configuration has none, at every width of linear layers."""
    config = getattr(network, "config", None)
    stated = config and getattr(config.get_text_config(), "intermediate_size", None)
    widths = [stated] if stated else sorted({layer.width for layer in linear_layers(network)})
    layers: dict[tuple[str, int], RowLayer] = {}
    for module in network.modules():
        name = type(module).__name__
        weight = getattr(module, "weight", None)
        if name.endswith("Norm") and weight is not None:
            layers.setdefault((name, weight.numel()), RowLayer(name, weight.numel(), module))
        elif type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation"):
            for width in widths:
                layers.setdefault((name, width), RowLayer(name, width, module))
    return list(layers.values())


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
    """Matrix products of the model's own shapes, as the engine makes them."""
    return _check_products(
        "matrix products as the engine makes them",
        uneven_counts(layers, ROW_COUNTS, dtype, device),
        len(layers),
        even="a token's states do not depend on its place in the prompt",
        uneven="a token's states depend on its place in the prompt, so that shuffling changes bits; "
        "another dtype, or another build of torch, may be free of it",
        is_promised=True,
    )


def check_own_products(layers: Sequence[RowLayer], dtype: torch.dtype, device: torch.device) -> Check:
    """The same products as torch makes them."""
    return _check_products(
        "matrix products as torch makes them",
        uneven_counts(layers, ROW_COUNTS, dtype, device),
        len(layers),
        even="torch's own would do for these shapes with this number of threads",
        uneven="so the engine makes them in another way",
        is_promised=False,
    )


@torch.inference_mode()
def check_packed_products(layers: Sequence[RowLayer]) -> Check:
    """Products with weights in 4 bits: each row among several, and alone."""
    uneven = set()
    for layer, count in product(layers, (*ROW_COUNTS, 36)):
        rows = _random((count, layer.width), torch.float32, torch.device("cpu"))
        alone = torch.cat([layer.function(row) for row in rows.split(1)])
        if not torch.equal(layer.function(rows), alone):
            uneven.add(count)
    return _check_products(
        "products with weights in 4 bits",
        sorted(uneven),
        len(layers),
        even="an answer does not depend on what is written beside it, nor on how much is",
        uneven="what is written beside an answer changes its logits; use float32",
        is_promised=True,
    )


def _check_products(
    name: str, counts: list[int], shapes: int, *, even: str, uneven: str, is_promised: bool
) -> Check:
    """even, uneven: what it means that no row count, or some, gives a row other bits in another place."""
    return Check(name, is_promised, not counts, _places(counts, shapes), uneven if counts else even)


@torch.inference_mode()
def check_rowwise(layers: Sequence[RowLayer], dtype: torch.dtype, device: torch.device) -> Check:
    """Activations and norms of the model, at the widths it has them and for prompts of several lengths."""
    uneven = []
    for layer in layers:
        counts = uneven_counts([layer], PROMPT_COUNTS, dtype, device)
        uneven += [f"{layer.name} of {count} x {layer.width}" for count in counts]
    return Check(
        "activations and norms",
        is_promised=True,
        holds=not uneven,
        found=f"{len(layers)} activations and norms, {listed(PROMPT_COUNTS)} rows, "
        f"{torch.get_num_threads()} threads: "
        + (f"a row's bits depend on its place in {listed(uneven)}" if uneven else EVEN),
        meaning="what is computed token by token does not know the place of the token"
        if not uneven
        else "a token's states depend on its place in the prompt; another number of threads "
        "(OMP_NUM_THREADS), or another dtype, may be free of it",
    )


@torch.inference_mode()
def check_fused_attention(dtype: torch.dtype, device: torch.device) -> Check:
    """Fused attention of one document, cut from a longer prompt at several places, as the engine cuts it."""
    uneven = []
    for (length, front), (heads, width) in product(DOCUMENTS, HEADS):
        query, key, value = _random((3, heads, length, width), dtype, device)
        prefix = _random((2, heads, front, width), dtype, device)
        outputs = []
        for place in (0, 1, 13, 64):
            long = torch.zeros(3, heads, place + length + 9, width, dtype=dtype, device=device)
            long[:, :, place : place + length] = torch.stack((query, key, value))
            cut_query, cut_key, cut_value = long[:, :, place : place + length]
            keys = torch.cat((prefix[0], cut_key), dim=1)
            values = torch.cat((prefix[1], cut_value), dim=1)
            mask = torch.ones(length, front + length, dtype=torch.bool, device=device).tril(front)
            outputs.append(_attend(copied(cut_query), keys, values, mask))
        if not all(torch.equal(output, outputs[0]) for output in outputs):
            uneven.append(f"{length} tokens, {heads} heads of {width}")
    return Check(
        "fused attention of a document wherever it stands",
        is_promised=True,
        holds=not uneven,
        found="the same bits at every place"
        if not uneven
        else f"other bits at another place for documents of {listed(uneven)}",
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
        else f"other bits than on its own for documents of {listed(uneven)} among {listed(lengths)} tokens",
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
        found=f"other bits the next time: {listed(changed)}" if changed else "the same bits every time",
        meaning="threads do not decide the order of sums"
        if not changed
        else "results change from run to run without any shuffle; see torch.use_deterministic_algorithms",
    )


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0]


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Drawn on the CPU in float32, so that the same numbers are tried everywhere.
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def _reorderings(count: int) -> list[Tensor]:
    """Rows backwards, and moved on by one: together they bring every row to other places."""
    rows = torch.arange(count)
    return [rows.flip(0), rows.roll(1)]


def _places(uneven: Sequence[int], num_layers: int) -> str:
    shapes = f"{num_layers} shapes of linear layers, {listed(ROW_COUNTS)} rows: "
    if uneven:
        return f"{shapes}a row's bits depend on its place with {listed(uneven)} rows"
    return f"{shapes}{EVEN}"


def listed(words: Iterable[object]) -> str:
    """The words with commas between them."""
    return ", ".join(map(str, words))
