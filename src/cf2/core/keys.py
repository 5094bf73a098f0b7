"""What people pass to name what is explained: ids, masks and pairs, as a checked list of keys."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from cf2.errors import CF2Error, require
from cf2.spec import Key


def check_ids(ids: Any, count: int, what: str = "id", cure: str = "") -> list[Key]:
    """Ids as a list of whole numbers, each from 0 to `count` - 1, in the order in which they are given.

    One id, or several in anything that can be listed; a slice; or a mask, one bool for each of the `count`. A set is
    sorted. An id that is given twice stays twice. `cure` is what to do about a number that is too large.

    >>> check_ids(slice(1, None), 3), check_ids([True, False, True], 3), check_ids({2, 0}, 3)
    ([1, 2], [0, 2], [0, 2])
    """
    listed: list[Any] = []
    try:
        for one in _listed(ids, count):
            listed.append(_plain(one))
            _check_id(listed[-1], count, what, cure)  # at once, for what never ends
    except CF2Error:
        raise
    except Exception as error:
        got = f"{_shown(ids)} ({type(error).__name__}: {error})"
        raise CF2Error(f"Expected `nodes` to be whole numbers from 0 to {count - 1}", got=got) from error
    if any(isinstance(one, bool) for one in listed):
        listed = _of_mask(listed, count)
    require(len(listed) > 0, f"Expected at least one {'node' if what == 'id' else 'graph'} to explain", got=_empty(ids))
    return sorted(listed) if isinstance(ids, set | frozenset) else listed


def _empty(ids: Any) -> str:
    """What is given where nothing is named, and why it is nothing."""
    if isinstance(ids, slice | range):
        return f"{ids!r}, which holds none"
    return "an empty list" if isinstance(ids, list | tuple) else "none"


def _check_id(one: Any, count: int, what: str, cure: str) -> None:
    if not isinstance(one, bool) and (type(one) is not int or not 0 <= one < count):
        expected = f"Expected every {what} in `nodes` to be a whole number from 0 to {count - 1}"
        raise CF2Error(expected, got=_shown(one), do=_cure(one) or cure)


def _listed(ids: Any, count: int) -> Iterable[Any]:
    """What `nodes` holds, one after the other."""
    if isinstance(ids, slice):
        return range(count)[ids]
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    elif hasattr(ids, "to_numpy"):  # a pandas Series or Index
        ids = ids.to_numpy()
    if isinstance(ids, np.ndarray):
        return _of_array(ids, count)
    alone = isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable)
    return [ids] if alone else ids


def _of_array(ids: np.ndarray, count: int) -> list[Any]:
    require(
        ids.ndim <= 1 and ids.dtype.kind in "iubO",
        "Expected `nodes` to be whole numbers in one dimension, or a mask",
        got=f"shape {ids.shape} and dtype {ids.dtype}",
        do={"b": "Pass one column of the mask.", "i": "Flatten it.", "u": "Flatten it."}.get(
            ids.dtype.kind, "Turn it into whole numbers with .long() or .astype(int)."
        ),
    )
    require(
        ids.dtype != np.uint8 or ids.shape != (count,) or bool((ids > 1).any()),
        "Expected to know whether `nodes` are ids or a mask",
        got=f"{count} zeros and ones of dtype uint8",
        do="Pass a mask as bool, ids as int64.",
    )
    return list(ids.reshape(-1).tolist())


def _of_mask(mask: list[Any], count: int) -> list[Any]:
    bools = sum(isinstance(one, bool) for one in mask)
    require(
        len(mask) == bools == count,
        f"Expected a mask in `nodes` to have one bool for each of the {count} that can be explained",
        got=f"{len(mask)}" if len(mask) == bools else f"{bools} among {len(mask)} values",
    )
    require(any(mask), "Expected a mask in `nodes` to choose at least one", got="none that is True")
    return [place for place, chosen in enumerate(mask) if chosen]


def _plain(one: Any) -> Any:
    """A whole number or a bool as Python has it; anything else as it is."""
    if isinstance(one, Tensor | np.ndarray | np.generic) and one.ndim == 0:
        one = one.item()
    return int(one) if isinstance(one, int) and not isinstance(one, bool) else one


def _shown(value: object) -> str:
    plain = not isinstance(value, Iterator) and " object at 0x" not in repr(value)
    return textwrap.shorten(repr(value), 80, placeholder="…") if plain else f"an object of type {type(value).__name__}"


def _cure(one: object) -> str:
    if isinstance(one, int):
        return "Ids count from 0." if one < 0 else ""
    if isinstance(one, float | str):
        return "Turn it into a whole number with int(…)."
    return "Pass one flat list." if isinstance(one, list | tuple | Tensor | np.ndarray | set | range) else ""


def check_pairs(pairs: Any, counts: tuple[int, int]) -> list[Key]:
    """Pairs (u, v) of ids below `counts`, as a list of tuples, in the order in which they are given.

    One pair, a list of them, or an array or tensor of shape [n, 2] or, as an `edge_index`, [2, n]; [2, 2] holds a pair
    in each row.

    >>> check_pairs([(3, 1), [0, 2]], (4, 4)), check_pairs(np.array([[3, 0, 2], [1, 2, 2]]), (4, 4))
    ([(3, 1), (0, 2)], [(3, 1), (0, 2), (2, 2)])
    """
    expected = "Expected `pairs` to hold two whole numbers each: [(u, v), …], or an array [n, 2] or [2, n]"
    try:
        given = pairs.to_numpy() if hasattr(pairs, "to_numpy") else pairs
        given = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        array = given if isinstance(given, np.ndarray) else np.array([_two(one) for one in _several(given)])
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(expected, got=f"{_shown(pairs)} ({type(error).__name__}: {error})") from error
    array = array.reshape(1, 2) if array.shape == (2,) else array
    array = array.T if array.ndim == 2 and array.shape[0] == 2 and array.shape[1] != 2 else array
    require(array.size > 0, "Expected at least one pair to explain", got="an empty `pairs`")
    require(array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu", expected, got=_shown(pairs))
    for column, count in enumerate(counts):
        wrong = array[(array[:, column] < 0) | (array[:, column] >= count)]
        where = ("first", "second")[column]
        require(
            not len(wrong),
            f"Expected the {where} number of every pair in `pairs` to be from 0 to {count - 1}",
            got=str(tuple(wrong[0].tolist())) if len(wrong) else "",
        )
    return [(u, v) for u, v in array.tolist()]


def _several(pairs: Any) -> list[Any]:
    listed = sorted(pairs) if isinstance(pairs, set | frozenset) else list(pairs)
    return [tuple(listed)] if len(listed) == 2 and all(isinstance(_plain(one), int) for one in listed) else listed


def _two(pair: Any) -> tuple[int, int]:
    u, v = (_plain(one) for one in pair)
    if type(u) is not int or type(v) is not int:
        raise TypeError(f"{pair!r:.40} is no pair of whole numbers")
    return u, v
