"""What a Parquet file holds, counted without unpacking it.

A page of a few bytes may stand for any number of values, and the footer may say less than the pages hold. Both are
written in Thrift's compact protocol, of which only the numbers are of interest here. pyarrow shows what the footer
says, but no headers of pages, and a damaged footer may end the whole process that has it read by pyarrow.

What is read here and what a library reads later must be the same. So whatever could be understood in two ways is
refused: a number of another width than the format has, one that does not fit its width, a page beyond its column.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

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
