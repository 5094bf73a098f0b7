"""How the values of options are read: from Python, from the command line, or as a manifest keeps them."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import Any, Literal, get_args

from cf2.errors import CF2Error, require, unknown_name

LARGEST = 2**63 - 1  # what a seed, a class or a number of units may be: torch has no larger whole numbers
Key = int | tuple[int, ...]  # what is explained: a node's id, a graph's position, or several ids
Edit = Literal["remove", "add", "change"]
EdgeType = tuple[str, str, str]  # source, relation, destination
Reverse = Literal["auto", "none"] | Mapping[EdgeType, EdgeType] | tuple[tuple[EdgeType, EdgeType], ...]
Pairs = tuple[tuple[Key | None, tuple[tuple[int, int], ...]], ...]  # pairs of nodes by key; None stands for every key


_NAMED = {"units": "kind of unit", "edits": "sort of edit", "atoms": "element"}


def names(option: str, given: Any, *, once: bool = True) -> tuple[str, ...]:
    listed = given.split(",") if isinstance(given, str) else given
    good = isinstance(listed, list | tuple) and len(listed) > 0 and all(isinstance(name, str) for name in listed)
    require(good, f"Expected `{option}` to be the name of a {_NAMED[option]}, or several", got=repr(given)[:200])
    names = tuple(name.strip() for name in listed)
    good = not once or len(set(names)) == len(names)
    require(good, f"Expected every {_NAMED[option]} once in `{option}`", got=repr(given)[:200])
    return names


def listed(value: Any) -> Any:
    """Arrays and tensors as lists; anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def pairs(option: str, given: Any) -> Pairs:
    """Pairs of nodes, the same for all keys or by key: lists, arrays [n, 2] or [2, n], or text such as 3:17,4:9."""
    try:
        if isinstance(given, Mapping):
            return tuple((_key(key), _ends(pairs)) for key, pairs in given.items()) or ((None, ()),)
        if isinstance(given, tuple | list) and given and all(_is_stored(part) for part in given):
            return tuple((None if key is None else _key(key), _ends(pairs)) for key, pairs in given)
        return ((None, _ends(given)),)
    except (TypeError, ValueError) as error:
        expected = f"Expected `{option}` to be pairs of nodes, [n, 2], or such pairs by key"
        raise CF2Error(expected, got=repr(given)[:200], do="On the command line: 3:17,4:9.") from error


def _is_stored(part: Any) -> bool:
    """Whether this is a key with its pairs, as a Spec keeps them."""
    pairs = part[1] if isinstance(part, tuple | list) and len(part) == 2 else None
    return isinstance(pairs, tuple | list) and all(isinstance(pair, tuple | list) for pair in pairs)


def _ends(given: Any) -> tuple[tuple[int, int], ...]:
    if isinstance(given, str):
        given = [pair.split(":") for pair in given.split(",")]
        given = [[int(end) for end in pair] for pair in given]
    rows = list(listed(given))
    if len(rows) == 2 and all(len(row) != 2 for row in rows):  # an edge_index
        rows = list(zip(*rows, strict=True))
    found = tuple((operator.index(a), operator.index(b)) for a, b in rows)
    if any(min(pair) < 0 for pair in found):
        raise ValueError("ids count from 0")
    return found


def groups(given: Any) -> Any:
    if given is None or isinstance(given, str):
        return given
    try:
        named = given.items() if isinstance(given, Mapping) else given
        return tuple((str(name), _ends(pairs)) for name, pairs in named)
    except (TypeError, ValueError) as error:
        expected = "Expected `groups` to be the name of an attribute, a number per edge, or pairs of nodes by name"
        raise CF2Error(expected, got=repr(given)[:200]) from error


def costs(given: Any) -> tuple[tuple[Edit, float], ...]:
    if given is None or isinstance(given, str):
        given = [part.split("=") for part in given.split(",")] if given else ()
    try:
        priced = given.items() if isinstance(given, Mapping) else given
        found = {str(name): float(plain_number(price)) for name, price in priced}
    except (TypeError, ValueError) as error:
        raise CF2Error("Expected `costs` to be a number per sort of edit", got=repr(given)[:200]) from error
    for name, price in found.items():
        if name not in get_args(Edit):
            raise unknown_name("a sort of edit in `costs`", name, get_args(Edit))
        require(0 < price <= 1e6, "Expected `costs` above 0", got=f"{name}={price}")
    return tuple(found.items())  # type: ignore[arg-type]


def ranges(given: Any) -> tuple[tuple[int, ...], ...] | None:
    if given is None:
        return None
    try:
        if isinstance(given, str):
            ends = [[int(end) for end in part.split("-")] for part in given.split(",")]
            given = [range(first, last + 1) for first, last in ends]
        found = tuple(tuple(operator.index(column) for column in group) for group in given)
    except (TypeError, ValueError) as error:
        expected = "Expected `one_hot` to be groups of feature columns, such as 0-13,14-20"
        raise CF2Error(expected, got=repr(given)[:200]) from error
    columns = [column for group in found for column in group]
    good = len(set(columns)) == len(columns) and all(len(group) > 1 for group in found) and min(columns, default=0) >= 0
    require(good, "Expected groups of at least two columns in `one_hot`, each column in one", got=repr(given)[:200])
    return found


def plain_number(value: Any) -> Any:
    """A number or bool of numpy or torch as the one of Python; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def classes(given: Any) -> int | tuple[tuple[Key, int], ...] | None:
    given = plain_number(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return None if given is None else _class(given)
    try:
        pairs = given.items() if isinstance(given, Mapping) else given
        found = tuple((_key(key), _class(value)) for key, value in pairs)
    except (TypeError, ValueError) as error:
        raise CF2Error("Expected `target` to be a class, or a class for each key", got=repr(given)[:200]) from error
    by_key = dict(found)
    twice = next((key for key, value in found if by_key[key] != value), None)
    require(twice is None, "Expected one class in `target` for each key", got=f"several for {twice}")
    return found


def sizes(given: Any) -> int | tuple[tuple[Key, int], ...] | None:
    """A size for all keys, or one per key: by key, as pairs, or of the best answers of explanations."""
    given = plain_number(given)
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return None if given is None else _size(given)
    try:
        pairs: Any = given.items() if isinstance(given, Mapping) else given
        named = [(e.key, e.size) if hasattr(e, "selected") else e for e in pairs if not getattr(e, "rank", 0)]
        return tuple({_key(key): _size(size) for key, size in named}.items())
    except (TypeError, ValueError) as error:
        expected = "Expected `sizes` to be a number of units, one for each key, or explanations"
        raise CF2Error(expected, got=repr(given)[:200]) from error


def _size(value: Any) -> int:
    if isinstance(plain_number(value), bool):
        raise TypeError("a size is a number")
    number = operator.index(value)
    require(0 <= number <= LARGEST, "Expected `sizes` to hold numbers of units, from 0", got=number)
    return number


def _class(value: Any) -> int:
    if isinstance(plain_number(value), bool):
        raise TypeError("a class is a number")
    number = operator.index(value)
    require(0 <= number <= LARGEST, "Expected `target` to hold classes, whole numbers from 0", got=number)
    return number


def _key(value: Any) -> Key:
    return tuple(operator.index(part) for part in value) if isinstance(value, list | tuple) else operator.index(value)


def edge_type(given: Any) -> EdgeType | None:
    """A type of edges: three names, or text such as user,likes,item."""
    if given is None:
        return None
    parts = given.split(",") if isinstance(given, str) else given
    good = isinstance(parts, list | tuple) and len(parts) == 3 and all(isinstance(part, str) for part in parts)
    require(good, "Expected `edge_type` to be (source, relation, destination)", got=repr(given))
    source, relation, destination = (part.strip() for part in parts)
    return source, relation, destination


def reverse(given: Any) -> Any:
    """auto, none, or edge types by the type that each is mirrored by: a mapping, or text such as a,to,b=b,from,a;…"""
    if given in ("auto", "none"):
        return given
    try:
        if isinstance(given, str):
            given = [part.split("=") for part in given.split(";")]
        named = given.items() if isinstance(given, Mapping) else given
        found = tuple((edge_type(one), edge_type(other)) for one, other in named)
    except (TypeError, ValueError, CF2Error) as error:
        expected = "Expected `reverse` to be 'auto', 'none' or edge types by the type that mirrors each"
        cure = "As text: user,buys,item=item,bought_by,user; in Python a mapping from one tuple to the other."
        raise CF2Error(expected, got=repr(given)[:200], do=cure) from error
    every = [kind for pair in found for kind in dict.fromkeys(pair)]
    require(len(set(every)) == len(every), "Expected every edge type once in `reverse`", got=repr(given)[:200])
    return found


def attributes(given: Any) -> dict[str, Any]:
    """Values by name, or JSON text of them, as plain lists and numbers."""
    try:
        named = json.loads(given) if isinstance(given, str) else given or {}
        return {str(name): listed(value) for name, value in named.items()}
    except (AttributeError, ValueError) as error:
        expected = "Expected `added_attributes` to be values by name"
        raise CF2Error(expected, got=repr(given)[:80], do='On the command line: {"edge_attr": [1, 0]}.') from error


def as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value
