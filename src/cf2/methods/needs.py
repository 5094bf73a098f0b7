"""What a method needs beside the model, checked when it is handed over."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from cf2.errors import CF2Error, require
from cf2.methods.contract import Method
from cf2.methods.trained import Trained


def check_needs(method: Method, given: Any) -> Any:
    """`trained` as the method reads it: None, a trained explainer, or the true edges [n, 2] by key."""
    if given is None:
        return None
    name, got = repr(method.name), f"an object of type {type(given).__name__}"
    require(method.needs != "nothing", f"Expected no `trained` for method {name}, which needs none", got=got)
    if method.needs == "training":
        cure = f"Train one with cf2.fit(model, data, method={name}, …)."
        cure = "Read the file with cf2.load_trained." if isinstance(given, str | PathLike) else cure
        require(isinstance(given, Trained), "Expected `trained` to be what cf2.fit made", got=got, do=cure)
        return given
    cure = "Pass trained={key: pairs of node ids}."
    require(isinstance(given, Mapping), "Expected `trained` to hold the true edges by key", got=got, do=cure)
    return {key: _true(pairs, key) for key, pairs in given.items()}


def _true(given: Any, key: object) -> Any:
    """Pairs, or pairs by the type of the edges."""
    if isinstance(given, Mapping):
        return {kind: _pairs(pairs, key) for kind, pairs in given.items()}
    return _pairs(given, key)


def _pairs(given: Any, key: object) -> np.ndarray:
    expected = f"Expected the true edges of {key} in `trained` to be pairs of node ids, [n, 2]"
    try:
        pairs = np.asarray(given)
    except Exception as error:  # of a ragged list, or a tensor that has no values
        raise CF2Error(expected, got=f"an object of type {type(given).__name__}") from error
    if not pairs.size:
        return np.zeros((0, 2), dtype=np.int64)
    good = pairs.dtype.kind in "iu" and pairs.shape[-1:] == (2,)
    require(good, expected, got=f"shape {pairs.shape} and dtype {pairs.dtype}")
    return pairs.astype(np.int64).reshape(-1, 2)
