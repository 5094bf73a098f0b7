"""Tensors that are held in another form than they look, and wide features, which are held as their non-zero entries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cf2.units.packs import SparseFeatures


class Folded(Tensor):
    """A tensor that is held in another form: steps are answered from that form, or else from all of its entries."""

    def dense(self) -> Tensor:
        """All of its entries."""
        raise NotImplementedError

    @classmethod
    def answer(cls, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """What a step of torch gives, as far as that follows from the other form; None: it needs all entries."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer what can be answered, and unfold for everything else."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func in _ABOUT_SHAPE:
                return func(*args, **kwargs)
            found = cls.answer(func, args, kwargs)
            return func(*unfolded(args), **unfolded(kwargs)) if found is None else found


def unfolded(value: Any) -> Any:
    """A value with all entries of the tensors inside of it."""
    if isinstance(value, Folded):
        return value.dense()
    if type(value) is dict:
        return {name: unfolded(part) for name, part in value.items()}
    return type(value)(map(unfolded, value)) if type(value) in (list, tuple) else value


_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "layout", "is_sparse", "is_cuda")
_ABOUT_SHAPE = {
    *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, torch.is_floating_point),
    *(Tensor.new_zeros, Tensor.new_ones, Tensor.new_full, Tensor.new_empty, Tensor.new_tensor),
}


class LazyFeatures(Folded):
    """Wide features of which only the non-zero entries are held, handed to a model as `x`.

    A number times them, dropout that is off and matrix products are computed from the entries; whatever else the model
    does gets the dense matrix, and `unfoldings` counts how often. Nothing is written into it.
    """

    sparse: SparseFeatures
    factor: float
    unfoldings: list[None]

    @staticmethod
    def of(
        shape: Tensor, sparse: SparseFeatures, factor: float = 1.0, unfoldings: list[None] | None = None
    ) -> LazyFeatures:
        """Features of that shape, dtype and device."""
        made: LazyFeatures = torch.Tensor._make_subclass(LazyFeatures, shape)
        made.sparse, made.factor, made.unfoldings = sparse, factor, [] if unfoldings is None else unfoldings
        return made

    def dense(self) -> Tensor:
        self.unfoldings.append(None)
        x = self.sparse.dense(self.size(1))
        return x if self.factor == 1.0 else self.factor * x

    @classmethod
    def answer(cls, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        x = args[0] if args else None
        if not isinstance(x, LazyFeatures):
            return None
        if func in _SCALINGS and not kwargs and isinstance(args[1], float | int):
            factor = x.factor / args[1] if func in _DIVISIONS else x.factor * args[1]
            return LazyFeatures.of(x.as_subclass(Tensor), x.sparse, factor, x.unfoldings)
        if func is functional.dropout and not (args[2] if len(args) > 2 else kwargs.get("training", True)):
            return x
        plain = len(args) > 1 and type(args[1]) in (Tensor, torch.nn.Parameter) and args[1].dim() == 2
        linear = func is functional.linear and kwargs.keys() <= {"bias"}
        if not plain or not (linear or (func in _PRODUCTS and not kwargs)):
            return None
        product = x.sparse.times(args[1], transposed=linear)
        product = product if x.factor == 1.0 else x.factor * product
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        return product if bias is None else product + bias


_DIVISIONS = {torch.div, Tensor.div, Tensor.__truediv__}
_SCALINGS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, *_DIVISIONS}
_PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}
