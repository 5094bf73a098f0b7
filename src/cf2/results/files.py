"""What a Parquet file holds, counted without unpacking it.

A page of a few bytes may stand for any number of values, and the footer may say less than the pages hold. Both are
written in Thrift's compact protocol, of which only the numbers are of interest here. pyarrow shows what the footer
says, but no headers of pages, and a damaged footer may end the whole process that has it read by pyarrow.

What is read here and what a library reads later must be the same. So whatever could be understood in two ways is
refused: a number of another width than the format has, one that does not fit its width, a page beyond its column.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cf2.errors import CF2Error, require, require_file
from cf2.graphs.typed import Types
from cf2.options import Key
from cf2.results.explanation import Explanation, UnitTable, stored_fields
from cf2.results.explanations import Explanations
from cf2.storage import write_with

# -- pages -----------------------------------------------------------------------------------------------


MAGIC = b"PAR1"
MOST_PARTS = 10**6  # row groups, columns, pages and items of lists of a file
DEEPEST = 8

# Types of the compact protocol.
STOP, TRUE, FALSE, BYTE, DOUBLE, BINARY, LISTS, STRUCT = 0, 1, 2, 3, 7, 8, (9, 10), 12
INT16, INT32, INT64 = 4, 5, 6
BITS = {INT16: 16, INT32: 32, INT64: 64}
# Fields of what a file holds, by their numbers in the format.
NUM_ROWS, ROW_GROUPS, COLUMNS, ELSEWHERE, COLUMN = 3, 4, 1, 1, 3
COLUMN_VALUES, COLUMN_PACKED, DATA_OFFSET, DICTIONARY_OFFSET = 5, 7, 9, 11
PAGE_UNPACKED, PAGE_PACKED, PAGE_KINDS, PAGE_VALUES = 2, 3, (5, 7, 8), 1


class Held(NamedTuple):
    """How many rows a file has, the most values of one column in a row group, and the bytes of all pages unpacked."""

    rows: int
    values: int
    unpacked: int


def count_held(path: Path) -> Held:
    """Count what a Parquet file holds; a ValueError or IndexError if it is none."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[-4:] != MAGIC or content[:4] != MAGIC:
            raise ValueError("no Parquet file")
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        if footer < 4:
            raise ValueError("a footer that is longer than the file")
        reader = _Reader(content, footer)
        about = reader.struct()
        chunks = [column for group in about[ROW_GROUPS] for column in group[COLUMNS]]
        counts = [reader.pages(chunk, footer) for chunk in chunks]
        said = [_size(chunk[COLUMN], COLUMN_VALUES, INT64) for chunk in chunks]
        values = max([*said, *(values for values, _ in counts)], default=0)
        return Held(_size(about, NUM_ROWS, INT64), values, sum(unpacked for _, unpacked in counts))


def _size(fields: dict[int, Any], number: int, kind: int) -> int:
    """A number of a struct; one of another width is passed over by those who read it later."""
    width, value = fields[number]
    if width != kind or value < 0:
        raise ValueError("a size that is none")
    return int(value)


class _Reader:
    """Reads structs from a place on: their numbers, structs and lists of structs. The rest is passed over."""

    def __init__(self, content: mmap.mmap, at: int) -> None:
        self.content, self.at, self.left = content, at, MOST_PARTS

    def pages(self, chunk: dict[int, Any], end_of_data: int) -> tuple[int, int]:
        """The values of all pages of a column chunk, and their bytes unpacked."""
        column = chunk[COLUMN]
        starts = [_size(column, number, INT64) for number in (DATA_OFFSET, DICTIONARY_OFFSET) if number in column]
        self.at = min((start for start in starts if start), default=end_of_data)  # without a row there is no page
        end, values, unpacked = self.at + _size(column, COLUMN_PACKED, INT64), 0, 0
        if self.at < 4 or end > end_of_data or ELSEWHERE in chunk:
            raise ValueError("pages that are elsewhere")
        while self.at < end:
            header = self.struct()
            values += sum(_size(header[kind], PAGE_VALUES, INT32) for kind in PAGE_KINDS if kind in header)
            unpacked += _size(header, PAGE_UNPACKED, INT32)
            self.at += _size(header, PAGE_PACKED, INT32)
        if self.at > end:
            raise ValueError("a page that ends behind its column")
        return values, unpacked

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a struct by their numbers; a number is there with its width."""
        self._count(1)
        if depth > DEEPEST:
            raise ValueError("structs in structs without end")
        return dict(self._fields(depth))

    def _count(self, parts: int) -> None:
        self.left -= parts
        if self.left < 0:
            raise ValueError("more parts than a file of explanations has")

    def _fields(self, depth: int) -> Iterator[tuple[int, Any]]:
        number = 0
        while (head := self._byte()) & 15 != STOP:
            number = number + (head >> 4) if head >> 4 else self._integer(INT16)
            if not 0 < number < 1 << 15:
                raise ValueError("a field without a number")
            yield number, None if head & 15 in (TRUE, FALSE) else self._value(head & 15, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in BITS:
            return kind, self._integer(kind)
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind == BINARY:
            length = self._varint()  # moves on by itself
            self.at += length
        elif kind in (TRUE, FALSE, BYTE, DOUBLE):
            self.at += 8 if kind == DOUBLE else 1
        elif kind in LISTS:
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            self._count(count)
            return [self._value(head & 15, depth) for _ in range(count)]
        else:
            raise ValueError("a part of another kind")
        return None

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _integer(self, kind: int) -> int:
        value = self._varint()
        if value >> BITS[kind]:
            raise ValueError("a number that does not fit")
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number of too many digits")


# -- limits ----------------------------------------------------------------------------------------------


MOST_JSON = 512 << 20  # bytes of a JSON document
MOST_FILE = MOST_UNPACKED = 4 << 30  # bytes of a Parquet file, and of what it says that it holds unpacked
MOST_ROWS = 10**7  # explanations
MOST_VALUES = 2 * 10**8  # numbers in one column


def check_size(path: Path) -> None:
    """Refuse a Parquet file whose footer or pages claim too much of anything."""
    held = count_held(path)
    sizes = (
        (held.rows, MOST_ROWS, "rows"),
        (held.values, MOST_VALUES, "numbers in a column"),
        (held.unpacked, MOST_UNPACKED, "bytes unpacked"),
    )
    for size, most, what in sizes:
        require(size <= most, f"Expected {str(path)!r} to hold at most {most:,} {what}", got=f"{size:,}")


def check_columns(schema: Any, types: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Refuse a Parquet file with other columns than one of `types` has."""
    held = {name: schema.field(name).type for name in set(schema.names)}
    if len(schema.names) != len(held) or held not in types:
        wrong = {name for name, kind in types[0].items() if held.get(name) != kind} | (held.keys() - types[0].keys())
        named = f"other columns: {', '.join(sorted(wrong)[:5])}"
        raise CF2Error(f"Expected {str(path)!r} to hold explanations", got=named)


def digest(about: Mapping[str, Any], columns: Mapping[str, Sequence[Any]]) -> str:
    """A SHA-256 of what a file holds, in whatever form: arrays by their bytes, the rest as JSON."""
    made = hashlib.sha256(json.dumps(about).encode())
    for name, values in columns.items():
        if values and isinstance(values[0], np.ndarray):
            made.update(f"{name} {[len(value) for value in values]}".encode())
            made.update(np.concatenate(values).tobytes())
        else:
            made.update(f"{name} {json.dumps(values)}".encode())
    return made.hexdigest()


def check_digest(stored: str | None, found: str, path: str) -> None:
    """Refuse contents that are not those that were written; a file without a digest is taken as it is."""
    require(
        stored is None or stored == found,
        f"Expected {path!r} to hold what was written to it",
        got="other contents",
        do="It was damaged or edited: get it again.",
    )


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("task", "status", "note", "question", "method", "output"), str),
    **dict.fromkeys(("sufficient", "necessary", "directed", "complete"), bool),
    **dict.fromkeys(("minimal", "optimal", "default"), (bool, type(None))),
    **dict.fromkeys(("prediction", "evaluations", "rank"), int),
    **dict.fromkeys(("robust", "robust_removals"), (tuple, type(None))),
    **dict.fromkeys(("label", "target", "seed", "lower_bound"), (int, type(None))),
    "seconds": (int, float),
    "tolerance": (int, float, type(None)),
    "settings": dict,
}


def checked(e: Explanation) -> Explanation:
    """The explanation, if each of its fields is of its kind and its numbers refer to something."""
    for name, kinds in _KINDS.items():
        value = getattr(e, name)
        plain = not isinstance(value, bool) or bool in (kinds if isinstance(kinds, tuple) else (kinds,))
        require(isinstance(value, kinds) and plain, f"Expected another `{name}`", got=f"{value!r:.60}")
    classes = len(e.probabilities)
    same = classes == len(e.probabilities_only) == len(e.probabilities_without)
    require(same and 0 <= e.prediction < classes, "Expected a class among the probabilities", got=e.prediction)
    named = all(isinstance(name, str) for name in e.units.names)
    known = not len(e.units) or 0 <= e.units.kind.min() <= e.units.kind.max() < len(e.units.names)
    groups = e.units.members[:, 0]
    known = known and (not len(groups) or 0 <= groups.min() <= groups.max() < len(e.units))
    require(named and bool(known), "Expected units of the kinds that are named", got="others")
    if e.types is not None:
        most = max(len(e.types.edges), len(e.types.nodes))
        inside = len(e.units.types) == len(e.units) and bool((e.units.types < most).all())
        require(inside, "Expected the type of every unit", got="others")
    return e


# -- files -----------------------------------------------------------------------------------------------


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
UNIT_COLUMNS = (
    "unit_names",
    "unit_kind",
    "unit_ids",
    "unit_values",
    "unit_members",
    "unit_types",
)  # of the table of units


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
            row |= dict(zip(UNIT_COLUMNS, parts))
        elif f.name == "types":
            row["types"] = None if e.types is None else e.types.to_json()
        else:
            row[f.name] = getattr(e, f.name)
    return row


def _explanation(row: dict[str, Any]) -> Explanation:
    """The inverse of `_row`."""
    names, *columns = (row.pop(name) for name in UNIT_COLUMNS)
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
    return {name: known[name] for name in [*names[:place], *UNIT_COLUMNS, *names[place + 1 :]]}
