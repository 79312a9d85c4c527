"""Self-test of single operations: results of a row are independent of its index and reproducible."""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from pine_engine.attention.arithmetic import copied
from pine_engine.models.packed import PackedWeight, is_packable
from pine_engine.network.batch_invariant_ops import (
    IN_DECODE_STEP,
    cancelling_rows,
    cancelling_weight,
    is_quantized,
)
from pine_engine.network.parallel import is_split

GEMM_ROWS = (*range(2, 17), 64, 300)
"""Numbers of rows of the tested GEMMs: all small ones, as in decode steps, and two as in prefill."""

EXPERT_ROWS = (2, 7, 33, 64, 300)
"""Numbers of rows of the tested mixtures of experts, each of which gets a share of them."""

EXPERT_SCALE = 256
"""Factor of the rows of mixtures of experts."""

ELEMENTWISE_ROWS = (12, 13, 64, 101, 300, 301)
"""Numbers of rows of the tested activations and norms: prompts of even and odd length."""

DOCUMENTS = ((1, 5), (7, 30), (23, 5), (140, 30))
"""Numbers of tokens of a document and of the prefix in front of it."""

HEADS = ((4, 32), (1, 32), (1, 40), (3, 24))  # numbers of heads and head dimensions

RowLayer = tuple[str, int, Callable[[Tensor], Tensor]]
"""Name, width and function of a layer that maps each row of (rows, width) independently."""


@dataclass(frozen=True)
class Check:
    """Result of one check of the self-test."""

    name: str
    holds: bool
    found: str  # measurement, with numbers
    meaning: str  # property of the engine that depends on the check

    @property
    def verdict(self) -> str:
        """Result for tables."""
        return "pass" if self.holds else "FAIL"


def check_all(name: str, failed: Collection[str], *, scope: str, meaning: str) -> Check:
    """Return a check that holds if nothing in its scope failed."""
    result = f"results differ for {join(failed)}" if failed else "results are bitwise identical"
    return Check(name, not failed, f"{scope}: {result}", meaning)


def join(items: Iterable[object]) -> str:
    """Join items with commas."""
    return ", ".join(map(str, items))


def linear_layers(network: nn.Module, *, is_packed: bool = False) -> list[RowLayer]:
    """Return one linear layer of each shape, or its GEMM with the 4-bit weights of decode steps.

    Dense weights are replaced by those whose sums cancel: another order of a sum then changes most results.
    """
    by_shape: dict[tuple[int, int, bool], nn.Linear] = {}
    for module in network.modules():
        if isinstance(module, nn.Linear):
            by_shape.setdefault((module.in_features, module.out_features, module.bias is not None), module)
    if not is_packed:
        return [("linear layer", module.in_features, _cancelling(module)) for module in by_shape.values()]
    return [
        ("4-bit linear layer", module.in_features, PackedWeight.of(module.weight).multiply)
        for module in by_shape.values()
        if is_packable(module)
    ]


def _cancelling(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    weight = layer.weight
    # Hooks load or gather the weights of their layer.
    has_hook = hasattr(layer, "_hf_hook") or is_split(layer)
    if has_hook or is_quantized(weight) or not weight.is_floating_point():
        return layer
    replaced = {"weight": cancelling_weight(len(weight), weight.shape[1], weight.dtype).to(weight.device)}
    if layer.bias is not None:
        replaced["bias"] = torch.zeros_like(layer.bias)
    return lambda rows: functional_call(layer, replaced, rows)


def in_decode_steps(layers: Iterable[RowLayer]) -> list[RowLayer]:
    """Return layers as they are computed in decode steps."""

    def compute(layer: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        IN_DECODE_STEP.set(True)
        return layer(rows)

    def compute_apart(layer: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        return copy_context().run(compute, layer, rows)

    return [
        (f"{name} of decode steps", width, partial(compute_apart, layer)) for name, width, layer in layers
    ]


def expert_layers(network: PreTrainedModel) -> list[RowLayer]:
    """Return one mixture of experts of each kind, with its router, and with weights whose sums cancel."""
    layers: dict[str, RowLayer] = {}
    for module in network.modules():
        if isinstance(getattr(module, "experts", None), nn.Module):
            width = network.config.get_text_config().hidden_size
            layers.setdefault(type(module).__name__, (type(module).__name__, width, _mixture(module, width)))
    return list(layers.values())


def _mixture(module: nn.Module, width: int) -> Callable[[Tensor], Tensor]:
    # Weights (experts, out, in) of the first layers; second layers have another width or layout.
    replaced = {
        name: cancelling_weight(len(weight) * weight.shape[1], width, weight.dtype)
        .view(weight.shape)
        .to(weight.device)
        for name, weight in module.named_parameters()
        if weight.dim() == 3 and weight.shape[-1] == width and weight.is_floating_point()
    }

    def mix(rows: Tensor) -> Tensor:
        # The second layers multiply rounding errors, which must not be too small for float16.
        output = functional_call(module, replaced, EXPERT_SCALE * rows[None])
        hidden_states: Tensor = output[0] if isinstance(output, tuple) else output
        return hidden_states.view(rows.shape)

    return mix


def elementwise_layers(network: nn.Module) -> list[RowLayer]:
    """Return one norm of each kind and width, and one activation of each kind and width.

    The width of activations is that of the MLP or, if the configuration has none, of every linear layer.
    """
    config = getattr(network, "config", None)
    mlp_width = config and getattr(config.get_text_config(), "intermediate_size", None)
    widths = [mlp_width] if mlp_width else sorted({width for _, width, _ in linear_layers(network)})
    layers: dict[tuple[str, int], RowLayer] = {}
    for module in network.modules():
        name = type(module).__name__
        weight = getattr(module, "weight", None)
        if name.endswith("Norm") and weight is not None:
            layers.setdefault((name, weight.numel()), (name, weight.numel(), module))
        elif type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation"):
            for width in widths:
                layers.setdefault((name, width), (name, width, module))
    return list(layers.values())


@torch.inference_mode()
def check_rows(
    name: str, layers: Sequence[RowLayer], counts: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Check:
    """Check that each row of a layer is bitwise identical after the rows are reversed and rotated."""
    failed = []
    for (layer, width, function), count in product(layers, counts):
        rows = cancelling_rows(count, width, dtype).to(device)
        result = function(rows)
        indices = torch.arange(count)
        orders = indices.flip(0), indices.roll(1)  # together they move every row
        if not all(torch.equal(function(rows[order]), result[order]) for order in orders):
            failed.append(f"{layer} ({count} x {width})")
    scope = f"{len(layers)} layers, {join(counts)} rows, {torch.get_num_threads()} threads"
    meaning = "hidden states of a token do not depend on its index in the prompt"
    return check_all(name, failed, scope=scope, meaning=meaning)


@torch.inference_mode()
def check_experts(layers: Sequence[RowLayer], dtype: torch.dtype, device: torch.device) -> Check:
    """Check that each row of a mixture of experts is bitwise identical next to any number of other rows."""
    failed = []
    for layer, width, function in layers:
        rows = cancelling_rows(max(EXPERT_ROWS), width, dtype).to(device)
        result = function(rows)
        failed += [
            f"{layer} ({count} x {width})"
            for count in EXPERT_ROWS
            if not torch.equal(function(rows[-count:].clone()), result[-count:])
        ]
    scope = f"{len(layers)} layers, {join(EXPERT_ROWS)} rows, {torch.get_num_threads()} threads"
    meaning = "hidden states of a token do not depend on the tokens that the same expert gets"
    return check_all("mixture of experts", failed, scope=scope, meaning=meaning)


@torch.inference_mode()
def check_packed(layers: Sequence[RowLayer]) -> Check:
    """Check that each row of a 4-bit GEMM is bitwise identical in every batch size, one included."""
    counts = (*GEMM_ROWS, 36)
    failed = []
    for layer, width, function in layers:
        rows = _random((max(counts), width), torch.float32, torch.device("cpu"))
        single = torch.cat([function(row) for row in rows.split(1)])
        failed += [
            f"{layer} ({count} x {width})"
            for count in counts
            if not torch.equal(function(rows[:count]), single[:count])
        ]
    scope = f"{len(layers)} layers, {join(counts)} rows"
    meaning = "an answer does not depend on the batch size"
    return check_all("GEMM with 4-bit weights", failed, scope=scope, meaning=meaning)


@torch.inference_mode()
def check_fused_attention(dtype: torch.dtype, device: torch.device) -> Check:
    """Check fused attention of one document, cut from a longer prompt at several offsets."""
    failed = []
    for (length, front), (heads, width) in product(DOCUMENTS, HEADS):
        document = _random((3, heads, length, width), dtype, device)
        prefix = _random((2, heads, front, width), dtype, device)
        mask = torch.ones(length, front + length, dtype=torch.bool, device=device).tril(front)
        outputs = []
        for offset in (0, 1, 13, 64):
            prompt = torch.zeros(3, heads, offset + length + 9, width, dtype=dtype, device=device)
            prompt[:, :, offset : offset + length] = document
            query, key, value = prompt[:, :, offset : offset + length]
            keys, values = torch.cat((prefix[0], key), dim=1), torch.cat((prefix[1], value), dim=1)
            outputs.append(_attend(copied(query), keys, values, mask))
        if not all(torch.equal(output, outputs[0]) for output in outputs):
            failed.append(f"{length} tokens, {heads} heads of {width}")
    scope = f"{len(DOCUMENTS) * len(HEADS)} shapes, 4 offsets"
    meaning = "attention of a document does not depend on its offset in the prompt"
    return check_all("fused attention", failed, scope=scope, meaning=meaning)


@torch.inference_mode()
def check_determinism(dtype: torch.dtype, device: torch.device) -> Check:
    """Check that each operation gives the same result three times: no sum depends on thread timing."""
    query, key, value = _random((3, 8, 300, 64), dtype, device)
    slots = torch.randint(300, (300,), generator=torch.Generator().manual_seed(1)).to(device)
    operations: dict[str, Callable[[], Tensor]] = {
        "fused attention": lambda: _attend(query, key, value, None),
        "GEMM": lambda: query[0] @ key[0].T,
        "batched GEMM": lambda: query @ key.mT,
        "sum": lambda: query.sum(),
        "cumsum": lambda: query.cumsum(-1),
        "index_select": lambda: key.index_select(1, slots),
        "argsort": lambda: torch.argsort(query, dim=-1, descending=True, stable=True),
    }
    results = {name: [compute() for _ in range(3)] for name, compute in operations.items()}
    failed = [name for name, (first, *rest) in results.items() if not all(map(first.equal, rest))]
    meaning = "results do not depend on the timing of threads; see torch.use_deterministic_algorithms"
    return check_all("determinism", failed, scope=f"{len(operations)} operations, 3 runs", meaning=meaning)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return scaled_dot_product_attention(query[None], key[None], value[None], attn_mask=mask)[0]


def _random(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Sampled on the CPU in float32, so that every device and dtype is tested with the same numbers.
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)
