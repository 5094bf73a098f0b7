"""Explanations in `.json` and `.parquet` files that are read back exactly.

A file may come from a stranger. Reading one runs no code. What it claims to hold is limited before anything is
unpacked, and what is unpacked is limited while it is read. Contents that differ from what was written are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cf2.errors import CF2Error, require, require_file, require_path, unknown_name
from cf2.graphs.typed import Types
from cf2.options import LARGEST, Key
from cf2.results.explanation import VERDICTS, Explanation, UnitTable, stored_fields
from cf2.results.explanations import Explanations
from cf2.storage import write_with

FORMAT = 2

MAX_JSON_BYTES = 512 << 20  # of a JSON document, and of the texts of a Parquet column
MAX_FILE_BYTES = 4 << 30  # of a Parquet file
MAX_UNPACKED_BYTES = 4 << 30  # of what a Parquet file holds
MAX_ROWS = 10**7  # explanations
MAX_COLUMN_VALUES = 2 * 10**8  # numbers in one column of a row group
MAX_FOOTER_PARTS = 10**5  # items of one list in the footer of a Parquet file
ROWS_PER_BATCH = 4096  # read between two looks at the memory that they take

STRENGTH = ("ps", "pn", "pns")
# Fields that files of 0.2 do not have, and those that only they have.
ADDED = (*STRENGTH, "contexts", "all_contexts", "counterexample", "always_bound", "surely", "curve", "ranking", "plain")
GONE = ("robust", "robust_removals")

# The type of a field's column, and what a value may be.
_MISSING = type(None)
FIELDS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("task", "status", "note", "question", "method", "output", "ranking"), ("string", (str,))),
    **dict.fromkeys(("sufficient", "necessary", "directed", "complete", "all_contexts"), ("bool", (bool,))),
    **dict.fromkeys(("minimal", "optimal", "default", "plain"), ("bool", (bool, _MISSING))),
    **dict.fromkeys(("prediction", "evaluations", "rank", "contexts"), ("int64", (int,))),
    **dict.fromkeys(("label", "target", "seed", "lower_bound", "always_bound"), ("int64", (int, _MISSING))),
    **dict.fromkeys(STRENGTH, ("doubles", (tuple, _MISSING))),
    "counterexample": ("list", (tuple, _MISSING)),
    "seconds": ("double", (int, float)),
    **dict.fromkeys(("tolerance", "surely"), ("double", (int, float, _MISSING))),
    "curve": ("curve", (tuple,)),  # pairs of a size and a PNS
    "settings": ("string", (dict,)),  # as JSON
    "types": ("string", (Types, _MISSING)),  # as JSON
}
# The dtype of each array, and the numbers in one row of it.
ARRAYS: dict[str, tuple[type, int]] = {
    "unit_kind": (np.int8, 1),
    "unit_ids": (np.int64, 2),
    "unit_values": (np.float64, 3),
    "unit_members": (np.int64, 3),
    "unit_types": (np.int16, 1),
    "scores": (np.float32, 1),
    "selected": (np.bool_, 1),
    "probabilities": (np.float32, 1),
    "probabilities_only": (np.float32, 1),
    "probabilities_without": (np.float32, 1),
}
UNIT_COLUMNS = tuple(f"unit_{f.name}" for f in fields(UnitTable))


def save(found: Explanations, path: str | Path) -> Path:
    """Write a `.parquet` or `.json` file that `load` reads back exactly."""
    path = require_path(path, "a file to write")
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
        path.write_text(json.dumps({**body, "digest": _digest(body, {})}), encoding="utf-8")


def load(path: str | Path) -> Explanations:
    """Read what `Explanations.save` wrote.

    Parameters
    ----------
    path : str or Path
        A `.parquet` or `.json` file. Reading it runs no code; files with implausible sizes are refused.

    Returns
    -------
    Explanations
    """
    path = require_path(path, "a file of explanations")
    as_json = path.suffix == ".json"
    require_file(path, "a file of explanations", most=MAX_JSON_BYTES if as_json else MAX_FILE_BYTES)
    try:
        return _read_json(path) if as_json else _read_parquet(path)
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(
            f"Expected {str(path)!r} to hold explanations", got=f"{type(error).__name__}: {error}"
        ) from error


# -- one explanation as a row ----------------------------------------------------------------------------------------


def to_dict(e: Explanation) -> dict[str, Any]:
    """Plain numbers, strings and lists, ready for JSON."""
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in _row(e).items()}


def from_dict(row: Mapping[str, Any]) -> Explanation:
    """The inverse of `to_dict`."""
    arrays: dict[str, Any] = {}
    for name, (dtype, width) in ARRAYS.items():
        arrays[name] = np.asarray(row[name], dtype=dtype).reshape(_shape(width))
    return _explanation({**row, **arrays})


def as_key(value: Any) -> Key:
    """A key as JSON and Parquet give it: a number, or a list for a tuple."""
    return tuple(int(part) for part in value) if isinstance(value, list | tuple | np.ndarray) else int(value)


def _row(e: Explanation) -> dict[str, Any]:
    """The stored fields of an explanation, with the table of units as columns."""
    row: dict[str, Any] = {}
    for f in stored_fields(e):
        if f.name == "units":
            row |= {f"unit_{own.name}": getattr(e.units, own.name) for own in fields(UnitTable)}
            row["unit_names"] = list(e.units.names)
        else:
            row[f.name] = getattr(e, f.name)
    return row | {"types": None if e.types is None else e.types.to_json()}


def _explanation(row: dict[str, Any]) -> Explanation:
    """The inverse of `_row`, if each field is of its kind and numbers refer to something."""
    names, *columns = (row.pop(name) for name in UNIT_COLUMNS)
    for name in GONE:
        row.pop(name, None)
    row["key"] = as_key(row["key"])
    row["types"] = None if row["types"] is None else Types.from_json(row["types"])
    for name in STRENGTH:
        value = row[name] = None if row.get(name) is None else tuple(float(part) for part in row[name])
        require(value is None or len(value) == 3, f"Expected a value and an interval as `{name}`", got=value)
    gone = row.get("counterexample")
    row["counterexample"] = None if gone is None else tuple(int(unit) for unit in gone)
    row["curve"] = tuple((int(size), float(share)) for size, share in row.get("curve") or ())
    e = Explanation(units=UnitTable(tuple(names), *columns), **row)
    for name, (_, kinds) in FIELDS.items():
        value = getattr(e, name)
        good = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        require(good, f"Expected another `{name}`", got=f"{value!r:.60}")
        numbers = value if isinstance(value, tuple) else (value,)
        small = all(abs(number) <= LARGEST for number in numbers if isinstance(number, int | float))
        require(small, f"Expected a `{name}` below 2⁶³", got=f"{value!r:.60}")
    require(all(0 <= part <= LARGEST for part in np.ravel(e.key).tolist()), "Expected a key below 2⁶³", got=e.key)
    if e.question not in VERDICTS:
        raise unknown_name("`question`", e.question, VERDICTS)
    classes = len(e.probabilities)
    same = classes == len(e.probabilities_only) == len(e.probabilities_without)
    require(same and 0 <= e.prediction < classes, "Expected a class among the probabilities", got=e.prediction)
    inside = all(isinstance(name, str) for name in names)
    inside = inside and _below(e.units.kind, len(names)) and _below(e.units.members[:, 0], len(e.units))
    inside = inside and _below(np.array(e.counterexample or (), dtype=np.int64), len(e.units))
    require(inside, "Expected units of the kinds that are named", got="others")
    if e.types is not None:
        most = max(len(e.types.edges), len(e.types.nodes))
        typed = len(e.units.types) == len(e.units) and bool((e.units.types < most).all())
        require(typed, "Expected the type of every unit", got="others")
    return e


def checked_context(context: Any, path: Path) -> dict[str, Any]:
    """What a file says beside its explanations, refused where a name has not what everything that shows it expects."""
    expected = f"Expected {str(path)!r} to say what its explanations are about"
    require(isinstance(context, dict), expected, got=f"{type(context).__name__} in its place")
    for name, good in CONTEXT.items():
        value = context.get(name)
        require(value is None or good(value), expected, got=f"another `{name}`: {value!r:.60}")
    for graph in (context.get("graphs") or {}).values():
        require(graph is None or isinstance(graph, dict), expected, got=f"another graph: {graph!r:.60}")
        checked_context({name: value for name, value in (graph or {}).items() if name in CONTEXT}, path)
    return dict(context)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)


CONTEXT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("dataset", "model", "method", "partial"), _is_text),
    "smiles": lambda value: _is_text(value) or (isinstance(value, dict) and all(map(_is_text, value.values()))),
    **dict.fromkeys(("class_names", "atoms", "labels"), _are_texts),
    **dict.fromkeys(("graphs", "truth"), lambda value: isinstance(value, dict)),
    "spec": lambda spec: (
        isinstance(spec, dict)
        and all(isinstance(spec.get(name) or {}, dict) for name in ("settings", "added_attributes"))
    ),
    **dict.fromkeys(("finished", "asked"), lambda value: type(value) is int),
}


def _below(numbers: np.ndarray, end: int) -> bool:
    return bool(((numbers >= 0) & (numbers < end)).all())


def _shape(width: int) -> tuple[int, ...]:
    return (-1,) if width == 1 else (-1, width)


# -- JSON, and what both formats check -------------------------------------------------------------------------------


def _read_json(path: Path) -> Explanations:
    stored = json.loads(path.read_text(encoding="utf-8"))
    _check_format(stored, path)
    _check_digest(stored.pop("digest", None), _digest(stored, {}), path)
    return Explanations(
        tuple(from_dict(row) for row in stored["explanations"]), checked_context(stored["context"], path)
    )


def _check_format(stored: Any, path: Path) -> None:
    require(
        isinstance(stored, dict) and stored.get("format") == FORMAT,
        f"Expected {str(path)!r} to have format {FORMAT}",
        got=stored.get("format") if isinstance(stored, dict) else type(stored).__name__,
        do="It was written by another version of cf2: explain again, or read it with that version.",
    )


def _digest(about: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> str:
    """A SHA-256 of what a file holds: arrays by their bytes, the rest as JSON."""
    digest = hashlib.sha256(json.dumps(about).encode())
    for name, values in columns.items():
        if values and isinstance(values[0], np.ndarray):
            digest.update(f"{name} {[len(value) for value in values]}".encode())
            digest.update(np.concatenate(values).tobytes())
        else:
            digest.update(f"{name} {json.dumps(values)}".encode())
    return digest.hexdigest()


def _check_digest(stored: str | None, actual: str, path: Path) -> None:
    """Refuse contents that are not those that were written; a file without a digest is taken as it is."""
    require(
        stored is None or stored == actual,
        f"Expected {str(path)!r} to hold what was written to it",
        got="other contents",
        do="It was damaged or edited; restore the original.",
    )


# -- Parquet: never a Python object per number -----------------------------------------------------------------------


def open_parquet(path: Path, texts_once: bool = False) -> Any:
    """A `pyarrow.parquet.ParquetFile` whose footer claims no absurd sizes; nothing of its pages is unpacked yet.

    With `texts_once`, columns of texts are read as dictionaries, in which a text that comes a million times is once.
    """
    import pyarrow.parquet as pq

    limits = {"thrift_string_size_limit": MAX_JSON_BYTES, "thrift_container_size_limit": MAX_FOOTER_PARTS}
    texts = None
    if texts_once:
        with pq.ParquetFile(path, **limits) as first:
            held = set(first.schema_arrow.names)  # an older file lacks some
        texts = [name for name, (kind, _) in FIELDS.items() if kind == "string" and name in held]
        texts += ["unit_names.list.element"] if "unit_names" in held else []
    file = pq.ParquetFile(path, read_dictionary=texts, **limits)
    footer, unpacked, values = file.metadata, 0, 0
    _check_size(path, footer.num_rows, MAX_ROWS, "rows")
    for group in range(footer.num_row_groups):
        # pyarrow ends the process if a damaged column is looked at; a reader of no rows raises an error instead.
        list(file.reader.iter_batches(0, row_groups=[group], use_threads=False))
        chunks = [footer.row_group(group).column(number) for number in range(footer.num_columns)]
        unpacked += sum(max(chunk.total_uncompressed_size, 0) for chunk in chunks)
        values = max([values, *(chunk.num_values for chunk in chunks)])
    _check_size(path, values, MAX_COLUMN_VALUES, "numbers in a column")
    _check_size(path, unpacked, MAX_UNPACKED_BYTES, "bytes unpacked")
    return file


def _check_size(path: Path, size: int, limit: int, what: str) -> None:
    require(size <= limit, f"Expected {str(path)!r} to hold at most {limit:,} {what}", got=f"{size:,}")


def _read_parquet(path: Path) -> Explanations:
    import pyarrow as pa

    with open_parquet(path, texts_once=True) as file:
        stored = json.loads((file.schema_arrow.metadata or {})[b"cf2"])
        _check_format(stored, path)
        _check_columns(file.schema_arrow, path)
        batches, unpacked = [], 0
        for batch in file.iter_batches(batch_size=ROWS_PER_BATCH, use_threads=False):
            unpacked += batch.nbytes  # pages may hold more than the footer says
            _check_size(path, unpacked, MAX_UNPACKED_BYTES, "bytes unpacked")
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema_arrow)
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if name in ARRAYS:
            columns[name] = _arrays(column, *ARRAYS[name])
        elif name == "unit_names" or FIELDS.get(name, ("",))[0] == "string":
            columns[name] = _texts(column, path)
        else:
            columns[name] = column.to_pylist()
    _check_digest(stored.pop("digest", None), _digest(stored, columns), path)
    columns |= {name: [json.loads(value) for value in columns[name]] for name in ("settings", "types")}
    rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
    return Explanations(tuple(_explanation(row) for row in rows), checked_context(stored["context"], path))


def _write_parquet(found: Explanations, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, kinds = [_row(e) for e in found], {isinstance(e.key, tuple) for e in found}
    require(len(kinds) < 2, "Expected keys of one kind for Parquet", got="numbers and tuples", do="Save as .json.")
    types = _column_types(tuple_keys=True in kinds)
    values: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in types}
    values |= {name: [value.astype(dtype) for value in values[name]] for name, (dtype, _) in ARRAYS.items()}
    values |= {name: [json.dumps(value) for value in values[name]] for name in ("settings", "types")}
    values["curve"] = [[[float(size), share] for size, share in curve] for curve in values["curve"]]
    columns = [
        _lists(values[name], *ARRAYS[name], kind) if name in ARRAYS else pa.array(values[name], type=kind)
        for name, kind in types.items()
    ]
    about = {"format": FORMAT, "context": found.context}
    meta = {b"cf2": json.dumps({**about, "digest": _digest(about, values)}).encode()}
    schema = pa.schema(list(types.items()), metadata=meta)
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="zstd")


def _column_types(tuple_keys: bool = False, texts_once: bool = False) -> dict[str, Any]:
    """The type of every column, in the order of the fields."""
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string()) if texts_once else pa.string()
    numbers = pa.list_(pa.int64())
    special = {
        "string": text,
        "list": numbers,
        "doubles": pa.list_(pa.float64()),
        "curve": pa.list_(pa.list_(pa.float64())),
    }
    types = {name: special.get(kind) or pa.type_for_alias(kind) for name, (kind, _) in FIELDS.items()}
    types |= {"key": numbers if tuple_keys else pa.int64(), "unit_names": pa.list_(text)}
    for name, (dtype, width) in ARRAYS.items():
        number = pa.from_numpy_dtype(dtype)
        types[name] = pa.list_(number if width == 1 else pa.list_(number))
    names = [f.name for f in stored_fields(Explanation)]
    position = names.index("units")
    return {name: types[name] for name in [*names[:position], *UNIT_COLUMNS, *names[position + 1 :]]}


def _check_columns(schema: Any, path: Path) -> None:
    """Refuse a Parquet file with other columns than explanations have."""
    held = {name: schema.field(name).type for name in set(schema.names) if name not in GONE}
    held |= {name: _column_types(texts_once=True)[name] for name in ADDED if name not in held}
    expected, with_tuples = (_column_types(tuple_keys, texts_once=True) for tuple_keys in (False, True))
    if len(schema.names) != len(set(schema.names)) or held not in (expected, with_tuples):
        wrong = {name for name, kind in expected.items() if held.get(name) != kind} | (held.keys() - expected.keys())
        named = f"other columns: {', '.join(sorted(wrong)[:5])}"
        raise CF2Error(f"Expected {str(path)!r} to hold explanations", got=named)


def _lists(values: list[np.ndarray], dtype: type, width: int, kind: Any) -> Any:
    """One list per row; a pair is a list of two inside it, a triple one of three."""
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    flat = np.concatenate([np.zeros(0, dtype), *(value.reshape(-1) for value in values)])
    inner = pa.array(flat)
    if width > 1:
        inner = pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32)), inner)
    return pa.ListArray.from_arrays(pa.array(ends), inner).cast(kind)


def _arrays(column: Any, dtype: type, width: int) -> list[np.ndarray]:
    """The inverse of `_lists`."""
    ends, inner = column.offsets.to_numpy() * width, column.values
    complete = not column.null_count and not inner.null_count
    if width > 1:
        complete = complete and bool((np.diff(inner.offsets.to_numpy()) == width).all())
        inner = inner.values
    require(complete and not inner.null_count, "Expected lists of numbers", got="some without a value")
    flat = inner.to_numpy(zero_copy_only=False).astype(dtype)
    return [flat[start:end].reshape(_shape(width)).copy() for start, end in pairwise(ends)]


def _texts(column: Any, path: Path) -> list[Any]:
    """Texts, or lists of them; one that comes a million times is one object."""
    import pyarrow.compute as pc

    if hasattr(column, "offsets"):
        inner = _texts(column.values, path)
        require(not column.null_count, "Expected lists of texts", got="some without a value")
        return [inner[start:end] for start, end in pairwise(column.offsets.to_pylist())]
    letters = pc.sum(pc.utf8_length(column.dictionary).take(column.indices)).as_py() or 0
    _check_size(path, letters, MAX_JSON_BYTES, "letters in a column")
    texts = column.dictionary.to_pylist()
    return [None if position is None else texts[position] for position in column.indices.to_pylist()]
