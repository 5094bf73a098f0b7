"""Wide features as a model is handed them: a tensor that is held as its non-zero entries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cf2.units.packs import SparseFeatures


class LazyFeatures(Tensor):
    """Wide features of which only the non-zero entries are held, handed to a model as `x`.

    A number times them, dropout that is off and matrix products are computed from the entries; whatever else the model
    does gets the dense matrix, and `unfolded` counts how often. Nothing is written into it.
    """

    sparse: SparseFeatures
    factor: float
    unfolded: list[None]

    @staticmethod
    def of(shape: Tensor, sparse: SparseFeatures) -> LazyFeatures:
        """Features of that shape, dtype and device."""
        return LazyFeatures._times(shape, sparse, 1.0, [])

    @staticmethod
    def _times(shape: Tensor, sparse: SparseFeatures, factor: float, unfolded: list[None]) -> LazyFeatures:
        made: LazyFeatures = torch.Tensor._make_subclass(LazyFeatures, shape)
        made.sparse, made.factor, made.unfolded = sparse, factor, unfolded
        return made

    def _product(self, weight: Tensor, transposed: bool) -> Tensor:
        product = self.sparse.times(weight, transposed)
        return product if self.factor == 1.0 else self.factor * product

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer what can be answered from the entries, and unfold for everything else."""
        kwargs = kwargs or {}
        x = args[0] if args else None
        with torch._C.DisableTorchFunctionSubclass():
            if func in _ABOUT_SHAPE:
                return func(*args, **kwargs)
            if isinstance(x, LazyFeatures):
                if func in _SCALINGS and not kwargs and isinstance(args[1], float | int):
                    factor = x.factor / args[1] if func in _DIVISIONS else x.factor * args[1]
                    return LazyFeatures._times(x.as_subclass(Tensor), x.sparse, factor, x.unfolded)
                if func is functional.dropout and not (args[2] if len(args) > 2 else kwargs.get("training", True)):
                    return x
                plain = len(args) > 1 and type(args[1]) in (Tensor, torch.nn.Parameter) and args[1].dim() == 2
                if func is functional.linear and plain and kwargs.keys() <= {"bias"}:
                    bias = args[2] if len(args) > 2 else kwargs.get("bias")
                    product = x._product(args[1], True)
                    return product if bias is None else product + bias
                if func in _PRODUCTS and plain and not kwargs:
                    return x._product(args[1], False)
            return func(*(_unfold(value) for value in args), **{name: _unfold(v) for name, v in kwargs.items()})


def _unfold(value: Any) -> Any:
    if isinstance(value, LazyFeatures):
        value.unfolded.append(None)
        return value.factor * value.sparse.dense(value.size(1))
    return type(value)(map(_unfold, value)) if type(value) in (list, tuple) else value


_SCALINGS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.div, Tensor.div, Tensor.__truediv__}
_DIVISIONS = {torch.div, Tensor.div, Tensor.__truediv__}
_PRODUCTS = {torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, Tensor.__matmul__}
_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "layout", "is_sparse", "is_cuda")
_ABOUT_SHAPE = {
    *(getattr(Tensor, name).__get__ for name in _ATTRIBUTES),
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point, torch.is_floating_point),
}
