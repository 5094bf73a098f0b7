"""Borrowing the user's model: masks on its messages, and everything put back as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import Linear, MessagePassing

from cf2.errors import CF2Error, require


def message_layers(model: torch.nn.Module) -> list[MessagePassing]:
    """The layers that pass messages, in the order in which the model lists them."""
    return [module for module in model.modules() if isinstance(module, MessagePassing)]


@contextmanager
def borrowed(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode without caches; modes, caches and the random state come back, also after a failure."""
    modes = [(module, module.training) for module in model.modules()]
    caches: list[tuple[torch.nn.Module, dict[str, Any]]] = []
    try:
        for module in model.modules():
            if getattr(module, "cached", False) is True:  # a cached normalisation would outlive the removal
                names = ["cached", *(n for n in vars(module) if n.startswith("_cached"))]
                caches.append((module, {name: getattr(module, name) for name in names}))
                for name in names:
                    setattr(module, name, False if name == "cached" else None)
        model.eval()
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        for module, values in caches:
            for name, value in values.items():
                setattr(module, name, value)
        for module, mode in modes:
            module.training = mode


@contextmanager
def restored_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Put buffers (running statistics) back if running the model changes them, and refuse a model that does so."""
    dense = [(name, buffer) for name, buffer in model.named_buffers() if buffer.layout == torch.strided]
    before = [(name, buffer, buffer.clone()) for name, buffer in dense]
    changed: list[str] = []
    try:
        yield
    finally:
        for name, buffer, copy in before:
            if bool(((buffer != copy) & (buffer == buffer)).any()):
                buffer.copy_(copy)
                changed.append(name)
    require(
        not changed,
        "Expected a model that stays as it is when it is run in evaluation mode",
        got=f"one that changes its buffer `{'`, `'.join(changed[:1])}`",
        do="Does it ignore model.eval()? Running statistics must not be updated then.",
    )


@contextmanager
def masked_messages(
    layers: list[MessagePassing],
    edge_index: Tensor,
    weight: Callable[[], Tensor | None],
    num_nodes: int,
    columns: Callable[[MessagePassing, Tensor], Tensor | None] = lambda layer, edge_index: None,
) -> Iterator[None]:
    """Multiply every message along column e of `edge_index` by `weight()[e]`.

    A layer may drop, add or reorder edges (self-loops) before it passes messages, so a message's weight is
    looked up by its two ends, which is well defined because duplicate edges share a unit. Loops that a layer
    adds keep weight 1. Where a layer sees other ids, `columns` says which column each of its messages came from.
    While `weight()` is None, messages are left alone.
    """
    lookup = _Lookup(edge_index, num_nodes)
    seen: dict[MessagePassing, Tensor] = {}

    def before(layer: MessagePassing, inputs: tuple[Any, ...]) -> None:
        seen[layer] = inputs[0]

    def after(layer: MessagePassing, inputs: tuple[Any, ...], out: Tensor) -> Tensor:
        soft = weight()
        if soft is None:
            return out
        place = columns(layer, seen[layer])
        found = lookup(seen[layer], soft) if place is None else torch.cat([soft, soft.new_ones(1)])[place]
        mask = found.to(out.dtype)
        return out * mask.view(_broadcast(out, mask, layer))

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_propagate_forward_pre_hook(before).remove)
            stack.callback(layer.register_message_forward_hook(after).remove)
        yield


def _broadcast(out: Tensor, mask: Tensor, layer: MessagePassing) -> list[int]:
    """A shape that lays the mask along the message dimension of `out` and nowhere else."""
    dim = layer.node_dim if layer.node_dim >= 0 else out.dim() + layer.node_dim
    return [mask.numel() if axis == dim else 1 for axis in range(out.dim())]


class _Lookup:
    """Weights of the columns of one edge list, read in the order of another."""

    def __init__(self, edge_index: Tensor, num_nodes: int) -> None:
        self.edge_index, self.num_nodes = edge_index, num_nodes
        self.known: list[tuple[Tensor, Tensor]] = []
        self.sorted: tuple[Tensor, Tensor] | None = None

    def __call__(self, edge_index: Tensor, weight: Tensor) -> Tensor:
        if _same(edge_index, self.edge_index):
            return weight
        place = next((place for known, place in self.known if _same(edge_index, known)), None)
        if place is None:
            place = self._place(edge_index)
            self.known.append((edge_index.clone(), place))
        return torch.cat([weight, weight.new_ones(1)])[place]

    def _place(self, edge_index: Tensor) -> Tensor:
        """The column of each edge; edges that are not ours (added loops) point one past the last column."""
        if self.sorted is None:
            self.sorted = (self.edge_index[0] * self.num_nodes + self.edge_index[1]).sort()
        keys, order = self.sorted
        wanted = edge_index[0] * self.num_nodes + edge_index[1]
        if not keys.numel():
            return torch.zeros_like(wanted)
        near = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
        return torch.where(keys[near] == wanted, order[near], order.new_tensor(order.numel()))


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


@contextmanager
def read_sparse(model: torch.nn.Module, x: Tensor, product: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Compute every linear layer that reads the features `x` from their non-zero entries.

    `x` is only a shape; `product(W)` gives features @ W of the real ones. Layers that read anything else are
    not touched.
    """
    reading: list[bool] = []

    def before(layer: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        given = inputs[0] if inputs else None
        reading.append(isinstance(given, Tensor) and given.shape == x.shape and given.data_ptr() == x.data_ptr())
        return (x[:1], *inputs[1:]) if reading[-1] else None

    def after(layer: Any, inputs: tuple[Any, ...], out: Tensor) -> Tensor:
        if not reading.pop():
            return out
        wide = product(layer.weight.t())
        return wide if layer.bias is None else wide + layer.bias

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear | Linear) and module.weight.shape[1:] == x.shape[1:]:
                stack.callback(module.register_forward_pre_hook(before).remove)
                stack.callback(module.register_forward_hook(after).remove)
        yield


@contextmanager
def single_thread() -> Iterator[None]:
    """One torch thread and no denormal numbers inside; the caller's settings afterwards.

    Adam's second moments of dead parameters become denormal, which slows everything several times; and two
    threads on busy cores are slower than one.
    """
    threads = torch.get_num_threads()
    flushed = (torch.tensor([1e-40]) * 1.0).item() == 0.0
    if threads != 1:
        torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        if threads != 1:
            torch.set_num_threads(threads)


@contextmanager
def borrowed_on(model: torch.nn.Module, device: torch.device, origin: torch.device) -> Iterator[None]:
    """The model borrowed, on a device; it goes back to where it was."""
    with single_thread(), borrowed(model):
        if device != origin:
            model.to(device)
        try:
            yield
        finally:
            if device != origin:
                model.to(origin)


def find_device(name: torch.device | str) -> torch.device:
    """The device of that name, if torch knows it and has it here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise ValueError("it holds no numbers")
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        reason = str(error).split(". ")[0].splitlines()[0]
        raise CF2Error("Expected a device that torch has here", got=f"{str(name)!r} ({reason})") from error
    return device
