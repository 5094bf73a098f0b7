"""Explanations as files: one JSON document, or one Parquet table with a row each and sets as lists."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cf2.core.whole_files import write_with
from cf2.errors import CF2Error, require, require_file
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from cf2.results.limits import MOST_FILE, MOST_JSON, check_columns, check_digest, check_size, checked, digest
from cf2.spec import Key

FORMAT = 2

PAIRS, FLAT = (-1, 2), (-1,)
ARRAYS: dict[str, tuple[type, tuple[int, ...]]] = {
    "unit_kind": (np.int8, FLAT),
    "unit_ids": (np.int64, PAIRS),
    "scores": (np.float32, FLAT),
    "selected": (np.bool_, FLAT),
    "probabilities": (np.float32, FLAT),
    "probabilities_only": (np.float32, FLAT),
    "probabilities_without": (np.float32, FLAT),
}
COLUMNS = ("unit_names", "unit_kind", "unit_ids")  # what becomes of the table of units


def save(found: Explanations, path: str | Path) -> Path:
    """Write a `.parquet` or `.json` file that `load` reads back exactly."""
    path = Path(path)
    require(path.parent.is_dir(), "Expected a directory to save in", got=f"{str(path.parent)!r}, which is not there")
    require(path.suffix in (".parquet", ".json"), "Expected a path that ends in .parquet or .json", got=repr(str(path)))
    write_with(path, lambda partial: write(found, partial), make=False)
    return path


def write(found: Explanations, path: Path) -> None:
    """Write the file itself, at once under its name."""
    if path.suffix == ".parquet":
        _write_parquet(found, path)
    else:
        body = {"format": FORMAT, "context": found.context, "explanations": [to_dict(e) for e in found]}
        path.write_text(json.dumps({**body, "digest": digest(body, {})}), encoding="utf-8")


def load(path: str | Path) -> Explanations:
    """Read what `Explanations.save` wrote.

    Parameters
    ----------
    path : str or Path
        A `.parquet` or `.json` file. Reading it runs no code, and one that claims absurd sizes is refused.

    Returns
    -------
    Explanations
    """
    path = Path(path)
    as_json = path.suffix == ".json"
    require_file(path, "a file of explanations", most=MOST_JSON if as_json else MOST_FILE)
    try:
        return _read_json(path) if as_json else _read_parquet(path)
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(
            f"Expected {str(path)!r} to hold explanations", got=f"{type(error).__name__}: {error}"
        ) from error


def _check_format(stored: Any, path: Path) -> None:
    require(
        isinstance(stored, dict) and stored.get("format") == FORMAT,
        f"Expected {str(path)!r} to have format {FORMAT}",
        got=stored.get("format") if isinstance(stored, dict) else type(stored).__name__,
        do="It was written by another version of cf2: explain again, or read it with that version.",
    )


def _row(e: Explanation) -> dict[str, Any]:
    """An explanation's fields, with the table of units as columns."""
    row: dict[str, Any] = {}
    for f in fields(e):
        if f.name == "units":
            row |= dict(zip(COLUMNS, (list(e.units.names), e.units.kind, e.units.ids)))
        else:
            row[f.name] = getattr(e, f.name)
    return row


def _explanation(row: dict[str, Any]) -> Explanation:
    """The inverse of `_row`."""
    names, kind, ids = (row.pop(name) for name in COLUMNS)
    key = row.pop("key")
    return checked(Explanation(key=as_key(key), units=UnitTable(tuple(names), kind, ids), **row))


def as_key(value: Any) -> Key:
    """A key as JSON and Parquet give it: a number, or a list for a tuple."""
    return tuple(int(part) for part in value) if isinstance(value, list | tuple | np.ndarray) else int(value)


def to_dict(e: Explanation) -> dict[str, Any]:
    """Plain numbers, strings and lists, ready for JSON."""
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in _row(e).items()}


def from_dict(row: dict[str, Any]) -> Explanation:
    """The inverse of `to_dict`."""
    values = dict(row)
    for name, (dtype, shape) in ARRAYS.items():
        values[name] = np.asarray(values[name], dtype=dtype).reshape(shape)
    return _explanation(values)


def _read_json(path: Path) -> Explanations:
    stored = json.loads(path.read_text(encoding="utf-8"))
    _check_format(stored, path)
    check_digest(stored.pop("digest", None), digest(stored, {}), str(path))
    return Explanations(tuple(from_dict(row) for row in stored["explanations"]), stored["context"])


# -- Parquet: never a Python object per number --------------------------------------------------------------


def _write_parquet(found: Explanations, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_row(e) for e in found]
    types = _types(any(isinstance(e.key, tuple) for e in found))
    values: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in types}
    values |= {name: [value.astype(kind) for value in values[name]] for name, (kind, _) in ARRAYS.items()}
    values["settings"] = [json.dumps(value) for value in values["settings"]]
    columns = [
        _lists(values[name], *ARRAYS[name], kind) if name in ARRAYS else pa.array(values[name], type=kind)
        for name, kind in types.items()
    ]
    about = {"format": FORMAT, "context": found.context}
    meta = {b"cf2": json.dumps({**about, "digest": digest(about, values)}).encode()}
    schema = pa.schema(list(types.items()), metadata=meta)
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="zstd")


def _read_parquet(path: Path) -> Explanations:
    import pyarrow.parquet as pq

    check_size(path)
    with pq.ParquetFile(path) as file:
        stored = json.loads((file.schema_arrow.metadata or {})[b"cf2"])
        _check_format(stored, path)
        check_columns(file.schema_arrow, [_types(tuples) for tuples in (False, True)], path)
        table = file.read()
    columns: dict[str, Any] = {}
    for name in _types(False):
        column = table.column(name).combine_chunks()
        columns[name] = _arrays(column, *ARRAYS[name]) if name in ARRAYS else column.to_pylist()
    check_digest(stored.pop("digest", None), digest(stored, columns), str(path))
    columns["settings"] = [json.loads(value) for value in columns["settings"]]
    rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
    return Explanations(tuple(_explanation(row) for row in rows), stored["context"])


def _lists(values: list[np.ndarray], dtype: type, shape: tuple[int, ...], kind: Any) -> Any:
    """One list per row; a pair is a list of two inside it."""
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
    whole = not column.null_count and not inner.null_count
    if shape == PAIRS:
        whole = whole and bool((np.diff(inner.offsets.to_numpy()) == 2).all())
        inner = inner.values
        pointer = pointer * 2
    require(whole and not inner.null_count, "Expected lists of numbers", got="some without a value")
    flat = inner.to_numpy(zero_copy_only=False).astype(dtype)
    return [flat[start:end].reshape(shape).copy() for start, end in pairwise(pointer)]


def _types(tuples: bool) -> dict[str, Any]:
    """The type of every column, in the order of the fields."""
    import pyarrow as pa

    known = dict.fromkeys(("prediction", "label", "target", "seed", "evaluations", "lower_bound"), pa.int64())
    known |= dict.fromkeys(("task", "status", "note", "question", "method", "settings"), pa.string())
    known |= dict.fromkeys(("sufficient", "necessary", "minimal", "optimal", "directed"), pa.bool_())
    known |= {"seconds": pa.float64(), "key": pa.list_(pa.int64()) if tuples else pa.int64()}
    known["unit_names"] = pa.list_(pa.string())
    kinds = {np.int8: pa.int8(), np.int64: pa.int64(), np.float32: pa.float32(), np.bool_: pa.bool_()}
    for name, (dtype, shape) in ARRAYS.items():
        known[name] = pa.list_(pa.list_(kinds[dtype])) if shape == PAIRS else pa.list_(kinds[dtype])
    names = [f.name for f in fields(Explanation)]
    place = names.index("units")
    return {name: known[name] for name in [*names[:place], *COLUMNS, *names[place + 1 :]]}
