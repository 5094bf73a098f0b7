"""Borrowing the user's model: masks on its messages, and everything put back as it was."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from cf2.errors import CF2Error, require
from cf2.graphs.graph import edge_positions


def message_layers(model: torch.nn.Module) -> list[MessagePassing]:
    """The layers that pass messages, in the order in which the model lists them."""
    return [module for module in model.modules() if isinstance(module, MessagePassing)]


class Loan:
    """The user's model borrowed: in evaluation mode, without caches, with gradients allowed, for one thread at a time.

    All that could change is noted before anything does, and `end` puts it back: modes, hooks, caches, the device, the
    random state, grad mode and torch's threads. Every step of it can be taken twice, so what an interrupt has left
    undone is done by a second call.
    """

    def __init__(self, model: torch.nn.Module, device: torch.device, origin: torch.device) -> None:
        self.model, self.device, self.origin = model, device, origin
        self.dtype = torch.float32
        self._undo: list[Callable[[], Any]] = []

    def begin(self) -> None:
        """Take the model, as soon as no other thread has it."""
        undo, model = self._undo, self.model
        undo.append(lambda: _end_turn(model, self))
        _take_turn(model, self)
        flushed = _flushes_denormals()
        undo.append(lambda: _leave_single_thread(self, flushed))
        _enter_single_thread(self)
        states, random = [(module, _state(module)) for module in model.modules()], torch.get_rng_state()
        undo += [lambda: _restore(states), lambda: torch.set_rng_state(random)]
        if torch.cuda.is_available():
            everywhere = torch.cuda.get_rng_state_all()
            undo.append(lambda: torch.cuda.set_rng_state_all(everywhere))
        normal, grad = torch.inference_mode(False), torch.is_grad_enabled()
        undo.append(lambda: _exit(normal))
        normal.__enter__()
        undo.append(lambda: torch.set_grad_enabled(grad))
        torch.set_grad_enabled(True)
        self.dtype = torch.get_default_dtype()  # our own numbers are single; the model is run with the caller's default
        undo.append(lambda: torch.set_default_dtype(self.dtype))
        torch.set_default_dtype(torch.float32)
        if self.device != self.origin:
            undo.append(lambda: model.to(self.origin))
            model.to(self.device)
        for module in model.modules():
            if getattr(module, "cached", False) is True:  # a cached normalisation would outlive the removal
                for name in [name for name in vars(module) if name.startswith("_cached")]:
                    setattr(module, name, None)
                module.cached = False  # type: ignore[assignment]
        model.eval()

    def end(self) -> None:
        """Give the model back as it was; a second time, do what an interrupt has left undone."""
        while self._undo:
            self._undo[-1]()
            self._undo.pop()

    def __enter__(self) -> Loan:
        try:
            self.begin()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.end()
        finally:
            self.end()


# Which thread has which model, by its id, and for which loans. A lock that an interrupt leaves closed would never open
# again, so a thread that has to wait looks from time to time; each step on a dictionary is one for the interpreter.
_HOLDERS: dict[int, tuple[int, set[Loan]]] = {}


def _take_turn(model: torch.nn.Module, loan: Loan) -> None:
    """Wait until no other thread has the model; a thread may borrow what it has already."""
    while True:
        owner, loans = _HOLDERS.setdefault(id(model), (get_ident(), set()))
        if owner == get_ident():
            loans.add(loan)
            return
        time.sleep(0.001)


def _end_turn(model: torch.nn.Module, loan: Loan) -> None:
    owner, loans = _HOLDERS.get(id(model), (0, set()))
    loans.discard(loan)
    if owner == get_ident() and not loans:
        _HOLDERS.pop(id(model), None)


def _exit(mode: torch.inference_mode) -> None:
    if hasattr(mode, "_inference_mode_context"):  # an interrupt may have come before it was entered
        mode.__exit__(None, None, None)


def _state(module: torch.nn.Module) -> dict[str, Any]:
    """What borrowing or running may change of a module: its mode, its caches and its hooks."""
    names = (n for n in vars(module) if "hooks" in n or n.startswith("_cached") or n in ("cached", "training"))
    return {name: copy.copy(value) if isinstance(value := vars(module)[name], dict) else value for name in names}


def _restore(states: list[tuple[torch.nn.Module, dict[str, Any]]]) -> None:
    for module, state in states:
        for name, value in state.items():
            hooks = vars(module)[name]
            if isinstance(value, dict) and isinstance(hooks, dict):  # handles of hooks hold on to the dictionary itself
                hooks.clear()
                hooks.update(value)
            else:
                vars(module)[name] = value


@contextmanager
def restored_buffers(model: torch.nn.Module) -> Iterator[None]:
    """Put buffers (running statistics) back if running the model changes them, and refuse a model that does so."""
    before = [(name, b, b.clone()) for name, b in model.named_buffers() if b.layout == torch.strided]
    changed: list[str] = []
    try:
        yield
    finally:
        for name, buffer, value in before:
            if bool(((buffer != value) & (buffer == buffer)).any()):
                buffer.copy_(value)
                changed.append(name)
    require(
        not changed,
        "Expected a model that does not change in evaluation mode",
        got=f"one that changes its buffer `{changed[0] if changed else ''}`",
        do="Does it ignore model.eval()? Running statistics must not be updated in evaluation mode.",
    )


@contextmanager
def masked_messages(
    layers: list[MessagePassing],
    edge_index: Tensor,
    weight: Callable[[], Tensor | None],
    columns: Callable[[MessagePassing, Tensor], Tensor | None],
) -> Iterator[None]:
    """Multiply every message along column e of `edge_index` by `weight()[e]`.

    A layer may drop, add or reorder edges (self-loops) before it passes messages, so a message's weight is
    looked up by its two ends, which is well defined because duplicate edges share a unit. Loops that a layer
    adds keep weight 1. Where a layer sees other ids, `columns` says which column each of its messages came from.
    While `weight()` is None, messages are left alone.
    """
    seen: dict[MessagePassing, Tensor] = {}
    positions: list[tuple[Tensor, Tensor]] = []  # other edge lists, and the columns of `edge_index` with their ends

    def columns_by_ends(edges: Tensor) -> Tensor:
        found = next((column for other, column in positions if _same(edges, other)), None)
        if found is None:
            found = edge_positions(edge_index, edges)
            positions.append((edges.clone(), found))
        return found

    def before(layer: MessagePassing, inputs: tuple[Any, ...]) -> None:
        seen[layer] = inputs[0]

    def after(layer: MessagePassing, inputs: tuple[Any, ...], out: Tensor) -> Tensor:
        soft, edges = weight(), seen[layer]
        if soft is None:
            return out
        column = columns(layer, edges)
        if column is None and not _same(edges, edge_index):
            column = columns_by_ends(edges)
        if column is not None:
            soft = torch.cat([soft, soft.new_ones(1)])[column]  # the column of an added loop is -1
        shape = [1] * out.dim()
        shape[layer.node_dim] = soft.numel()
        return out * soft.to(out.dtype).view(shape)

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_propagate_forward_pre_hook(before).remove)
            stack.callback(layer.register_message_forward_hook(after).remove)
        yield


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.shape == other.shape and torch.equal(one, other))


def _flushes_denormals() -> bool:
    return (torch.tensor([1e-40], dtype=torch.float32) * 1.0).item() == 0.0


_THREADS: dict[Any, int] = {}  # who asked for one thread, with torch's number of threads before


def _enter_single_thread(who: Any) -> None:
    now = torch.get_num_threads()
    _THREADS[who] = max([now, *list(_THREADS.values())])
    if now != 1:
        torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # of this thread alone


def _leave_single_thread(who: Any, flushed: bool) -> None:
    """The number of threads belongs to the process, so the last to leave puts it back."""
    torch.set_flush_denormal(flushed)
    before = _THREADS.get(who, 1)
    if set(_THREADS) <= {who} and before != 1:
        torch.set_num_threads(before)
    _THREADS.pop(who, None)


@contextmanager
def single_thread() -> Iterator[None]:
    """One torch thread and no denormal numbers inside; the caller's settings afterwards.

    Adam's second moments of dead parameters become denormal, which slows everything several times; and two
    threads on busy cores are slower than one.
    """
    who, flushed = object(), _flushes_denormals()
    _enter_single_thread(who)
    try:
        yield
    finally:
        _leave_single_thread(who, flushed)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Another default for new tensors inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


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
