"""A request as a small message and a few big arrays, which workers can then share instead of copying."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cf2.errors import CF2Error
from cf2.runs.session import Request

BIG = 1 << 16  # bytes; below that, looking an array up costs as much as sending it


def serialise(request: Request) -> tuple[bytes, list[np.ndarray]]:
    """The request as a message, and the arrays that the message refers to by number.

    Nothing is moved or changed: torch's own sharing would swap the memory under tensors that the user holds.
    """
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    try:
        pickler.dump(request)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CF2Error(
            "Expected a model that can be sent to another process",
            got=error,
            do='Define its class at the top level of a module, or use engine="local".',
        ) from error
    return stream.getvalue(), pickler.arrays


def deserialise(message: bytes, arrays: Sequence[np.ndarray]) -> Request:
    """The request again, on top of the given arrays."""
    request = _Unpickler(io.BytesIO(message), arrays).load()
    assert isinstance(request, Request)
    return request


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # ids are only unique among the living

    def persistent_id(self, item: Any) -> tuple[str, int, bool] | None:
        kind = {torch.Tensor: "tensor", torch.nn.Parameter: "parameter", np.ndarray: "array"}.get(type(item))
        if kind is None or item.nbytes < BIG:
            return None
        if kind == "array":
            return None if item.dtype.hasobject else (kind, self._number(item, item), False)
        plain = item.layout == torch.strided and item.device.type == "cpu" and item.dtype != torch.bfloat16
        if not plain or (item.requires_grad and not item.is_leaf):
            return None
        return kind, self._number(item, item.detach().numpy()), item.requires_grad

    def _number(self, item: Any, array: np.ndarray) -> int:
        if id(item) not in self._numbers:
            self._numbers[id(item)] = len(self.arrays)
            self.arrays.append(np.ascontiguousarray(array))
            self._alive.append(item)
        return self._numbers[id(item)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, arrays: Sequence[np.ndarray]) -> None:
        super().__init__(stream)
        self.arrays = arrays

    def persistent_load(self, known: Any) -> Any:
        kind, number, gradient = known
        array = self.arrays[number]
        if kind == "array":
            return array
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the array may be read-only, and nothing writes to it
            tensor = torch.from_numpy(array)
        return torch.nn.Parameter(tensor, gradient) if kind == "parameter" else tensor.requires_grad_(gradient)
