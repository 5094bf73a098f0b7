"""Explanations as files: one JSON document, or one Parquet table with a row each and sets as lists."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cf2.core.types import Types
from cf2.core.whole_files import write_with
from cf2.errors import CF2Error, require, require_file
from cf2.results.explanation import Explanation, stored_fields
from cf2.results.explanations import Explanations
from cf2.results.limits import MOST_FILE, MOST_JSON, check_columns, check_digest, check_size, checked, digest
from cf2.results.unit_table import UnitTable
from cf2.spec import Key

FORMAT = 2

PAIRS, TRIPLES, FLAT = (-1, 2), (-1, 3), (-1,)
ARRAYS: dict[str, tuple[type, tuple[int, ...]]] = {
    "unit_kind": (np.int8, FLAT),
    "unit_ids": (np.int64, PAIRS),
    "unit_values": (np.float64, TRIPLES),
    "unit_members": (np.int64, TRIPLES),
    "unit_types": (np.int16, FLAT),
    "scores": (np.float32, FLAT),
    "selected": (np.bool_, FLAT),
    "probabilities": (np.float32, FLAT),
    "probabilities_only": (np.float32, FLAT),
    "probabilities_without": (np.float32, FLAT),
}
TEXTS = ("task", "status", "note", "question", "method", "settings", "output", "types")
COLUMNS = ("unit_names", "unit_kind", "unit_ids", "unit_values", "unit_members", "unit_types")  # of the table of units


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
    for f in stored_fields(e):
        if f.name == "units":
            units = e.units
            parts = (list(units.names), units.kind, units.ids, units.values, units.members, units.types)
            row |= dict(zip(COLUMNS, parts))
        elif f.name == "types":
            row["types"] = None if e.types is None else e.types.to_json()
        else:
            row[f.name] = getattr(e, f.name)
    return row


def _explanation(row: dict[str, Any]) -> Explanation:
    """The inverse of `_row`."""
    names, *columns = (row.pop(name) for name in COLUMNS)
    key, types = row.pop("key"), row.pop("types")
    for name in ("robust", "robust_removals"):
        row[name] = None if row[name] is None else tuple(int(part) for part in row[name])
    of_types = None if types is None else Types.from_json(types)
    return checked(Explanation(key=as_key(key), units=UnitTable(tuple(names), *columns), types=of_types, **row))


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
    values |= {name: [json.dumps(value) for value in values[name]] for name in ("settings", "types")}
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
    with pq.ParquetFile(path, read_dictionary=[*TEXTS, "unit_names.list.element"]) as file:
        table = file.read()
    columns: dict[str, Any] = {}
    for name in _types(False):
        column = table.column(name).combine_chunks()
        if name in ARRAYS:
            columns[name] = _arrays(column, *ARRAYS[name])
        else:
            columns[name] = _texts(column, path) if name in (*TEXTS, "unit_names") else column.to_pylist()
    check_digest(stored.pop("digest", None), digest(stored, columns), str(path))
    columns |= {name: [json.loads(value) for value in columns[name]] for name in ("settings", "types")}
    rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
    return Explanations(tuple(_explanation(row) for row in rows), stored["context"])


def _lists(values: list[np.ndarray], dtype: type, shape: tuple[int, ...], kind: Any) -> Any:
    """One list per row; a pair is a list of two inside it, a triple one of three."""
    import pyarrow as pa

    pointer = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([len(value) for value in values], out=pointer[1:])
    parts: list[np.ndarray] = [value.astype(dtype, copy=False).reshape(-1) for value in values]
    flat = np.concatenate([np.zeros(0, dtype), *parts])
    inner = pa.array(flat)
    if shape != FLAT:
        ends = np.arange(0, len(flat) + 1, shape[1], dtype=np.int32)
        inner = pa.ListArray.from_arrays(pa.array(ends), inner)
    return pa.ListArray.from_arrays(pa.array(pointer), inner).cast(kind)


def _arrays(column: Any, dtype: type, shape: tuple[int, ...]) -> list[np.ndarray]:
    pointer = column.offsets.to_numpy()
    inner = column.values
    whole = not column.null_count and not inner.null_count
    if shape != FLAT:
        whole = whole and bool((np.diff(inner.offsets.to_numpy()) == shape[1]).all())
        inner = inner.values
        pointer = pointer * shape[1]
    require(whole and not inner.null_count, "Expected lists of numbers", got="some without a value")
    flat = inner.to_numpy(zero_copy_only=False).astype(dtype)
    return [flat[start:end].reshape(shape).copy() for start, end in pairwise(pointer)]


def _texts(column: Any, path: Path) -> list[Any]:
    """Texts, or lists of them. One that comes a million times is a few bytes on the disk, and one object here."""
    if hasattr(column, "offsets"):
        inner = _texts(column.values, path)
        require(not column.null_count, "Expected lists of texts", got="some without a value")
        return [inner[start:end] for start, end in pairwise(column.offsets.to_pylist())]
    texts, places = column.dictionary.to_pylist(), column.indices
    size = sum(len(texts[place]) for place in places.drop_null().to_pylist())
    require(
        size <= MOST_JSON, f"Expected {str(path)!r} to hold at most {MOST_JSON:,} letters in a column", got=f"{size:,}"
    )
    return [None if place is None else texts[place] for place in places.to_pylist()]


def _types(tuples: bool) -> dict[str, Any]:
    """The type of every column, in the order of the fields."""
    import pyarrow as pa

    known = dict.fromkeys(("prediction", "label", "target", "seed", "evaluations", "rank", "lower_bound"), pa.int64())
    known |= dict.fromkeys(TEXTS, pa.string())
    truths = ("sufficient", "necessary", "minimal", "optimal", "directed", "complete", "default")
    known |= dict.fromkeys(truths, pa.bool_())
    known |= dict.fromkeys(("robust", "robust_removals"), pa.list_(pa.int64()))
    known |= {"seconds": pa.float64(), "tolerance": pa.float64(), "key": pa.list_(pa.int64()) if tuples else pa.int64()}
    known["unit_names"] = pa.list_(pa.string())
    kinds = {np.int8: pa.int8(), np.int16: pa.int16(), np.int64: pa.int64(), np.bool_: pa.bool_()}
    kinds |= {np.float32: pa.float32(), np.float64: pa.float64()}
    for name, (dtype, shape) in ARRAYS.items():
        known[name] = pa.list_(pa.list_(kinds[dtype])) if shape != FLAT else pa.list_(kinds[dtype])
    names = [f.name for f in stored_fields(Explanation)]
    place = names.index("units")
    return {name: known[name] for name in [*names[:place], *COLUMNS, *names[place + 1 :]]}
