"""Explanations as one Parquet table: a row each, sets and scores as lists, never a Python object a number."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cf2.explanation import ARRAYS, FORMAT, PAIRS, Explanation, Explanations


def write(found: Explanations, path: Path) -> None:
    """Write a table that `read` gives back exactly."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = _types()
    columns = []
    for name, kind in types.items():
        values = [getattr(e, name) for e in found]
        if name in ARRAYS:
            columns.append(_lists(values, *ARRAYS[name], kind))
        else:
            plain = [json.dumps(value) for value in values] if name == "settings" else values
            columns.append(pa.array(plain, type=kind))
    meta = {b"cf2": json.dumps({"format": FORMAT, "context": found.context}).encode()}
    schema = pa.schema(list(types.items()), metadata=meta)
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="zstd")


def read(path: Path) -> Explanations:
    """What `write` wrote."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    context = json.loads((table.schema.metadata or {})[b"cf2"])["context"]
    columns: dict[str, list[Any]] = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        columns[name] = _arrays(column, *ARRAYS[name]) if name in ARRAYS else column.to_pylist()
    columns["settings"] = [json.loads(value) for value in columns["settings"]]
    rows = zip(*columns.values())
    return Explanations(tuple(Explanation(**dict(zip(columns, row))) for row in rows), context)


def _lists(values: list[np.ndarray], dtype: type, shape: tuple[int, ...], kind: Any) -> Any:
    """One list a row; a pair is a list of two inside it."""
    import pyarrow as pa

    pointer = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=pointer[1:])
    parts: list[np.ndarray] = [value.astype(dtype, copy=False).reshape(-1) for value in values]
    flat = np.concatenate([np.zeros(0, dtype), *parts])
    inner = pa.array(flat)
    if shape == PAIRS:
        ends = np.arange(0, len(flat) + 1, 2, dtype=np.int32)
        inner = pa.ListArray.from_arrays(pa.array(ends), inner)
    return pa.ListArray.from_arrays(pa.array(pointer), inner).cast(kind)


def _arrays(column: Any, dtype: type, shape: tuple[int, ...]) -> list[np.ndarray]:
    pointer = column.offsets.to_numpy()
    inner = column.values
    if shape == PAIRS:
        inner = inner.values
        pointer = pointer * 2
    flat = inner.to_numpy(zero_copy_only=False).astype(dtype)
    return [flat[start:end].reshape(shape).copy() for start, end in pairwise(pointer)]


def _types() -> dict[str, Any]:
    """The type of every field, in the order of the fields."""
    import pyarrow as pa

    known = dict.fromkeys(("key", "prediction", "label", "seed", "evaluations"), pa.int64())
    known |= dict.fromkeys(("task", "status", "note", "method", "settings"), pa.string())
    known |= dict.fromkeys(("sufficient", "necessary", "minimal", "optimal", "directed"), pa.bool_())
    known["seconds"] = pa.float64()
    kinds = {np.int64: pa.int64(), np.float32: pa.float32(), np.bool_: pa.bool_()}
    for name, (dtype, shape) in ARRAYS.items():
        known[name] = pa.list_(pa.list_(kinds[dtype])) if shape == PAIRS else pa.list_(kinds[dtype])
    return {f.name: known[f.name] for f in fields(Explanation)}
