"""What a Parquet file holds, counted here and by pyarrow; and files whose few bytes stand for far more."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cf2
from cf2.errors import CF2Error
from cf2.results import files
from cf2.results.files import count_held
from toys import NodeNet, random_graph

TYPES: dict[str, tuple[Any, Any]] = {
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text(max_size=12)),
    "few texts": (pa.string(), st.sampled_from(["a", "bb"])),
    "bytes": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "lists": (pa.list_(pa.int64()), st.lists(st.integers(0, 9), max_size=5)),
    "lists of lists": (
        pa.list_(pa.list_(pa.float32())),
        st.lists(st.lists(st.floats(width=32), max_size=3), max_size=3),
    ),
    "structs": (pa.struct([("a", pa.int32())]), st.fixed_dictionaries({"a": st.integers(0, 9)})),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Columns of any types and of one length, with values missing, perhaps many times over."""
    rows, times = draw(st.integers(0, 30)), draw(st.sampled_from([1, 1, 40]))
    columns = {}
    for number, name in enumerate(draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=4))):
        kind, value = TYPES[name]
        some = draw(st.lists(st.one_of(st.none(), value), min_size=rows, max_size=rows))
        columns[f"{name} {number}"] = pa.array(some * times, type=kind)
    return pa.table(columns)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=tables(),
    dictionary=st.booleans(),
    version=st.sampled_from(["1.0", "2.0"]),
    compression=st.sampled_from(["none", "snappy", "zstd", "gzip"]),
    group=st.sampled_from([7, 1000]),
    page=st.sampled_from([16, 1 << 20]),
    extras=st.booleans(),
)
def test_counts_are_those_of_pyarrow(
    tmp_path: Path,
    table: pa.Table,
    dictionary: bool,
    version: str,
    compression: str,
    group: int,
    page: int,
    extras: bool,
) -> None:
    """Data pages of both versions, with dictionaries or without, in many pages and row groups."""
    path = tmp_path / "x.parquet"
    pq.write_table(
        table,
        path,
        use_dictionary=dictionary,
        data_page_version=version,
        compression=compression,
        row_group_size=group,
        data_page_size=page,
        write_batch_size=4,
        write_page_index=extras,
        write_page_checksum=extras,
    )
    held, footer = count_held(path), pq.read_metadata(path)
    chunks = [footer.row_group(g).column(c) for g in range(footer.num_row_groups) for c in range(footer.num_columns)]
    assert held.rows == footer.num_rows == len(table)
    most = max((chunk.num_values for chunk in chunks), default=0)
    if dictionary:
        assert most <= held.values <= 2 * most  # the values of a dictionary are counted with the others
    else:
        assert held.values == most
    headers = sum(chunk.total_uncompressed_size for chunk in chunks) - held.unpacked  # pyarrow counts these, too
    assert 10 * sum(chunk.num_values > 0 for chunk in chunks) <= headers
    if page > 16:
        assert headers <= 400 * len(chunks)  # a page or two per column


# -- headers by hand ----------------------------------------------------------------------------------------------

INT16, INT32, INT64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int, kind: int = INT64) -> bytes:
    """A number with its field written out, not as a step from the one before."""
    return bytes([kind]) + varint(field << 1) + varint(value << 1)


def struct(field: int, *parts: bytes) -> bytes:
    return bytes([STRUCT]) + varint(field << 1) + b"".join(parts) + b"\0"


def structs(field: int, *items: bytes) -> bytes:
    head = bytes([len(items) << 4 | STRUCT]) if len(items) < 15 else bytes([15 << 4 | STRUCT]) + varint(len(items))
    return bytes([LIST]) + varint(field << 1) + head + b"".join(item + b"\0" for item in items)


def page(values: int = 5, packed: int = 0, unpacked: int = 10, *more: bytes) -> bytes:
    sizes = number(1, 0, INT32) + number(2, unpacked, INT32) + number(3, packed, INT32)
    return sizes + struct(5, number(1, values, INT32), *more) + b"\0" + bytes(packed)


def column(at: int, size: int, *more: bytes) -> bytes:
    return struct(3, number(5, 5), number(7, size), number(9, at), *more)


def file(pages: bytes, *columns: bytes, rows: int = 5) -> bytes:
    footer = number(3, rows) + structs(4, structs(1, *(columns or (column(4, len(pages)),)))) + b"\0"
    return b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def nested(depth: int) -> bytes:
    return struct(12, nested(depth - 1)) if depth else b""


def numbers(count: int) -> bytes:
    """The beginning of a list of so many numbers."""
    return bytes([LIST]) + varint(40) + bytes([15 << 4 | INT64]) + varint(count)


def counted(tmp_path: Path, content: bytes) -> tuple[int, int, int]:
    (tmp_path / "x").write_bytes(content)
    return tuple(count_held(tmp_path / "x"))  # type: ignore[return-value]


def test_pages_are_counted_and_not_what_the_footer_says(tmp_path: Path) -> None:
    assert counted(tmp_path, file(page(packed=3))) == (5, 5, 10)
    assert counted(tmp_path, file(page(2**31 - 1, 0, 2**31 - 1) * 3)) == (5, 3 * (2**31 - 1), 3 * (2**31 - 1))
    assert counted(tmp_path, file(b"")) == (5, 5, 0)
    for kind in (7, 8):  # dictionaries, and pages of the second version
        other = number(2, 9, INT32) + number(3, 0, INT32) + struct(kind, number(1, 1000, INT32)) + b"\0"
        assert counted(tmp_path, file(other)) == (5, 1000, 9)


BAD = {
    "a size of another width": file(page(), column(4, len(page())).replace(number(5, 5), number(5, 5, INT32))),
    "an offset of another width": file(page() * 2, column(4, 14, number(11, 4, INT32))),
    "a number that does not fit": file(page(2**33)),
    "a field whose number does not fit": file(page(), column(4, len(page()), number(5 + (1 << 16), 1 << 40))),
    "a field without a number": file(page(5, 0, 10, number(0, 1))),
    "a page beyond its column": file(page(packed=9), column(4, len(page()))),
    "a column beyond its file": file(page(), column(4, 1 << 40)),
    "a column in the footer's place": file(page(), column(1 << 20, 1)),
    "a column in another file": file(page(), bytes([BINARY]) + varint(2) + b"\1x" + column(4, len(page()))),
    "a negative size": file(number(2, 9, INT32) + bytes([INT32]) + varint(6) + varint(3) + b"\0"),
    "a page without a size": file(struct(5, number(1, 1, INT32)) + b"\0"),
    "structs in structs": file(page(), column(4, len(page()), nested(12))),
    "a list without end": file(page(), column(4, len(page()), numbers(1 << 40))),
    "a million items": file(page(), column(4, len(page()), numbers(1 << 20) + bytes(1 << 20))),
    "a map": file(page(), column(4, len(page()), bytes([11]) + varint(40))),
    "a footer before the file": b"PAR1" + (1 << 30).to_bytes(4, "little") + b"PAR1",
    "no file": b"PAR1PAR1",
    "an encrypted file": file(page())[:-4] + b"PARE",
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_could_be_read_in_two_ways_is_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        counted(tmp_path, BAD[case])
    (tmp_path / "x.parquet").write_bytes(BAD[case])
    with pytest.raises(CF2Error, match=r"x\.parquet"):
        cf2.load(tmp_path / "x.parquet")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_bytes_at_random_are_counted_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    made = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [["x"], [], None]}), made)
    content = bytearray(made.getvalue())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 5))] = data.draw(st.integers(0, 255))
    with suppress(ValueError, LookupError, TypeError):
        assert all(size >= 0 for size in counted(tmp_path, bytes(content)))


# -- texts that come many times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["note", "unit_names"])
def test_a_long_text_that_comes_many_times_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A dictionary holds it once, and rows refer to it: gigabytes in a few kilobytes."""
    found = cf2.explain(NodeNet("sum", seed=1), random_graph(30, 45, seed=6), nodes=[3], method="gradient", k=4)
    table = pq.read_table(found.save(tmp_path / "x.parquet"))
    about, rows = table.schema.metadata[b"cf2"], 500
    many = pa.concat_tables([table] * rows).combine_chunks()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 200_000]))
    column = text if name == "note" else pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), text)
    many = many.set_column(table.schema.get_field_index(name), name, column)
    path = tmp_path / "y.parquet"
    with pq.ParquetWriter(path, many.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(many)
        writer.add_key_value_metadata({"cf2": about.decode()})
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(files, "MOST_JSON", 10**7)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CF2Error, match=r"at most 10,000,000 letters in a column, but got 100,000,000"):
        cf2.load(path)
    assert pa.default_memory_pool().max_memory() - before < 50_000_000
