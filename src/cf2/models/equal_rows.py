"""Equal rows are computed once: each layer runs on the quotient of the packed graph by the colours of its nodes.

Trials of one instance are nearly the same graph many times, so that most nodes have a neighbourhood that other nodes
have as well. What a message passing layer gives to a node depends on the node's own row and on the multiset of its
messages alone (Weisfeiler and Leman's argument), so nodes of one colour need one row. The model is handed `EqualRows`,
a tensor that looks like all rows and holds those of each colour; steps that go row by row keep it so, a layer's
messages are passed on edges into one node of each colour, and whatever else is done with it gets all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import MessagePassing

from cf2.models.lazy_features import Folded, unfolded

MIXERS = (-7046029254386353131, -4417276706812531889, 6364136223846793005, 2862933555777941757)


Numbers = TypeVar("Numbers", Tensor, "np.ndarray[Any, Any]")


class NotByRows(Exception):
    """A step that writes into rows, of which nothing is known where they are held once."""


class Colouring:
    """The colours of the nodes in one run of the model; every new one refines those before it."""

    def __init__(self, x: Tensor) -> None:
        self.nodes = len(x)
        self.index: list[Tensor] = []  # by level, the colour of each node [N]
        self.first: list[Tensor] = []  # and a node of each colour
        self.refine(colours_of(x))

    def refine(self, names: Tensor) -> None:
        """One level more: nodes with the same number share a colour."""
        index = torch.unique(names, return_inverse=True)[1]
        nodes = torch.arange(self.nodes, device=index.device)
        self.first.append(nodes.new_empty(int(index.max()) + 1 if self.nodes else 0).index_copy_(0, index, nodes))
        self.index.append(index)

    def pass_messages(self, source: Tensor, target: Tensor, of_edges: list[Tensor]) -> None:
        """One level more: by the own colour and the multiset of messages, each a colour and what the edge has."""
        own = self.index[-1]
        message = own[source]
        for value in of_edges:
            message = mixed(message, 1) + colours_of(value)
        names = mixed(own + 1, 2)
        self.refine(names.index_add_(0, target, mixed(message + 1, 3)))


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def colours_of(values: Tensor) -> Tensor:
    """A number per row: the same for the same values, and for others with a probability of about 2⁻⁶⁴."""
    flat = values.detach().reshape(len(values), -1).contiguous()
    words = flat.view(_WORDS.get(flat.element_size(), torch.uint8))
    place = torch.arange(1, words.size(1) + 1, device=flat.device)
    return (mixed(words.long() + 1, 0) * (2 * mixed(place, 1) + 1)).sum(1)


def mixed(value: Numbers, number: int) -> Numbers:
    """Whole numbers to others that look random, in one of four ways."""
    value = (value ^ (value >> 29)) * MIXERS[number]
    value ^= value >> 32
    return value


class EqualRows(Folded):
    """All rows of nodes as a model sees them, of which the row of each colour is held once."""

    rows: Tensor  # [colours, …]
    colouring: Colouring
    level: int

    @staticmethod
    def of(rows: Tensor, colouring: Colouring, level: int) -> EqualRows:
        """Rows by the colours of a level."""
        shape = rows.new_empty(1).expand(colouring.nodes, *rows.shape[1:])
        made: EqualRows = torch.Tensor._make_subclass(EqualRows, shape)
        made.rows, made.colouring, made.level = rows, colouring, level
        return made

    def at(self, nodes: Tensor) -> Tensor:
        """The rows of some nodes."""
        return self.rows[self.colouring.index[self.level][nodes]]

    def by(self, level: int) -> Tensor:
        """A row for each colour of a level that refines this one."""
        return self.rows if level == self.level else self.at(self.colouring.first[level])

    def dense(self) -> Tensor:
        return self.rows[self.colouring.index[self.level]]

    @classmethod
    def answer(cls, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        name = getattr(func, "__name__", "")
        writes = (name.endswith("_") and not name.endswith("__")) or name in _AUGMENTED or kwargs.get("inplace")
        if writes and args and isinstance(args[0], EqualRows):
            raise NotByRows(name)
        step = _BY_ROW.get(func)
        return None if step is None else step(func, args, kwargs)


# -- steps that go row by row -------------------------------------------------------------------------------------


def _alone(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """A function of each row; what else it is given are weights."""
    x, *others = args
    if not isinstance(x, EqualRows) or any(isinstance(value, EqualRows) for value in (*others, *kwargs.values())):
        return None
    over_nodes = x.dim() < 2 if func is functional.linear else func is functional.layer_norm and x.dim() <= len(args[1])
    return None if over_nodes else EqualRows.of(func(x.rows, *others, **kwargs), x.colouring, x.level)


def _by_entry(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """A function of each entry; a further tensor may hold nodes."""
    further = any(isinstance(value, Tensor) for value in (*args[1:], *kwargs.values()))
    return None if further else _alone(func, args, kwargs)


def _evaluated(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """The same of what only mixes rows, or draws, in training."""
    place = 2 if func is functional.dropout else 5
    training = args[place] if len(args) > place else kwargs.get("training", func is functional.dropout)
    return None if training else _alone(func, args, kwargs)


def _together(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """A function of two, entry by entry: rows, numbers, or what is the same for all rows."""
    if len(args) != 2 or kwargs:
        return None
    lazy = [value for value in args if isinstance(value, EqualRows)]
    level, shape = max(value.level for value in lazy), lazy[0].shape
    for value in args:
        if isinstance(value, EqualRows):
            if value.dim() != len(shape):
                return None
        elif isinstance(value, Tensor) and value.dim() >= len(shape):
            return None
    rows = (value.by(level) if isinstance(value, EqualRows) else value for value in args)
    return EqualRows.of(func(*rows), lazy[0].colouring, level)


def _product(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    return _alone(func, args, kwargs) if len(args) == 2 and args[0].dim() > 1 and args[1].dim() == 2 else None


def _chosen(func: Any, args: Any, kwargs: Any) -> Tensor | None:
    """Rows of some nodes."""
    if kwargs or not isinstance(args[0], EqualRows):
        return None
    x, nodes = args[0], args[-1]
    if isinstance(nodes, tuple) and nodes[:1] == (slice(None),) and all(isinstance(n, int | slice) for n in nodes):
        return EqualRows.of(x.rows[nodes], x.colouring, x.level)
    by_rows = len(args) == 2 or args[1] in (0, -x.dim())
    if not by_rows or type(nodes) is not Tensor or nodes.dim() != 1 or nodes.dtype != torch.long:
        return None
    return x.at(nodes)


def _shaped(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """Another shape of each row."""
    x, *shape = args
    shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    if kwargs or not shape or shape[0] not in (-1, x.size(0)) or not all(isinstance(size, int) for size in shape):
        return None
    if shape[0] == -1 and math.prod(shape[1:]) != math.prod(x.shape[1:]):
        return None
    return EqualRows.of(x.rows.reshape(len(x.rows), *shape[1:]), x.colouring, x.level)


def _within(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    """A sum, mean or softmax within each row."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    if not isinstance(dim, int) or dim % args[0].dim() == 0:
        return None
    return _by_entry(func, args, kwargs)


def _side_by_side(func: Any, args: Any, kwargs: Any) -> EqualRows | None:
    parts, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    if not all(isinstance(part, EqualRows) for part in parts) or dim % parts[0].dim() == 0:
        return None
    level = max(part.level for part in parts)
    return EqualRows.of(torch.cat([part.by(level) for part in parts], dim), parts[0].colouring, level)


_ENTRIES = ("relu", "tanh", "sigmoid", "exp", "abs", "neg", "sqrt", "square", "log", "log1p", "sin", "cos", "erf")
_COPIES = ("clamp", "clone", "detach", "contiguous", "float", "double", "__neg__")
_ACTIVATIONS = ("relu", "leaky_relu", "elu", "selu", "gelu", "silu", "softplus", "celu", "hardtanh", "mish", "softsign")
_PAIRS = ("add", "sub", "mul", "div", "true_divide", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__")
_WITHIN = ("sum", "mean", "softmax", "log_softmax")


def _named(*names: str) -> set[Any]:
    """torch's functions and methods of these names."""
    return {getattr(where, name) for where in (torch, Tensor) for name in names if hasattr(where, name)}


_BY_ROW: dict[Any, Any] = {
    **dict.fromkeys(_named(*_ENTRIES, *_COPIES), _by_entry),
    **dict.fromkeys((getattr(functional, name) for name in _ACTIVATIONS), _by_entry),
    **dict.fromkeys((functional.linear, functional.layer_norm, functional.embedding), _alone),
    **dict.fromkeys((functional.dropout, functional.batch_norm), _evaluated),
    **dict.fromkeys(_named(*_PAIRS, "__rmul__", "__truediv__"), _together),
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__), _product),
    **dict.fromkeys((Tensor.__getitem__, torch.index_select, Tensor.index_select), _chosen),
    **dict.fromkeys((Tensor.view, Tensor.reshape), _shaped),
    **dict.fromkeys((*_named(*_WITHIN), functional.softmax, functional.log_softmax), _within),
    torch.cat: _side_by_side,
}
_AUGMENTED = ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__setitem__")


# -- messages -----------------------------------------------------------------------------------------------------


@contextmanager
def quotients(layers: list[MessagePassing]) -> Iterator[None]:
    """Have layers pass the messages of `EqualRows` into one node of each colour."""
    running: list[EqualRows | None] = []

    def before(layer: MessagePassing, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        made = _quotient(layer, *inputs)
        running.append(None if made is None else made[0])
        return made[1] if made is not None else (*inputs[:2], unfolded(inputs[2]))

    def after(layer: MessagePassing, inputs: tuple[Any, ...], out: Any) -> Any:
        some = running.pop()
        if some is None:
            return None
        return EqualRows.of(out, some.colouring, len(some.colouring.index) - 1)

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_propagate_forward_pre_hook(before).remove)
            stack.callback(layer.register_propagate_forward_hook(after).remove)
        yield


def _quotient(layer: Any, edge_index: Any, size: Any, given: dict[str, Any]) -> tuple[EqualRows, Any] | None:
    """Some lazy input, and the inputs of a layer for one node of each colour; None where it needs all rows."""
    of_nodes: dict[str, tuple[EqualRows | None, ...]] = {}
    of_edges: dict[str, Tensor] = {}
    lifted = {name[:-2] for name in layer._user_args if name[-2:] in ("_i", "_j")}
    for name, value in given.items():
        parts = value if isinstance(value, tuple | list) else (value, value)
        if name in lifted and value is not None:
            if name in layer._user_args or len(parts) != 2:
                return None
            if not all(part is None or isinstance(part, EqualRows) for part in parts):
                return None
            of_nodes[name] = tuple(parts)
        elif isinstance(value, Tensor) and value.dim():
            if isinstance(value, EqualRows) or len(value) != edge_index.size(1):
                return None
            of_edges[name] = value
        elif isinstance(value, tuple | list):
            return None
    lazy = [part for parts in of_nodes.values() for part in parts if part is not None]
    plain = type(edge_index) is Tensor and not edge_index.is_sparse and layer.decomposed_layers == 1
    if not lazy or not plain or any(layer.node_dim not in (0, -part.dim()) for part in lazy):
        return None
    nodes = lazy[0].colouring.nodes
    if size is not None and any(count not in (None, nodes) for count in size):
        return None
    colouring, level = lazy[0].colouring, len(lazy[0].colouring.index) - 1
    j, i = (0, 1) if layer.flow == "source_to_target" else (1, 0)
    source, target = edge_index[j], edge_index[i]
    colouring.pass_messages(source, target, list(of_edges.values()))
    first = colouring.first[-1]
    number = torch.full_like(colouring.index[-1], -1).index_copy_(0, first, torch.arange(len(first)))
    column = (number[target] >= 0).nonzero().flatten()
    ends, sizes, made = edge_index[:, column], [0, 0], dict(given)
    ends[j], ends[i] = colouring.index[level][source[column]], number[target[column]]
    sizes[j], sizes[i] = len(colouring.first[level]), len(first)
    for name, parts in of_nodes.items():
        rows: list[Tensor | None] = [None, None]
        rows[j] = None if parts[j] is None else parts[j].by(level)  # type: ignore[union-attr]
        rows[i] = None if parts[i] is None else parts[i].at(first)  # type: ignore[union-attr]
        made[name] = tuple(rows)
    made |= {name: value[column] for name, value in of_edges.items()}
    return lazy[0], (ends, tuple(sizes), made)
