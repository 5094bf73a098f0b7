"""The one error for everything a user can get wrong.

A message says what was expected, what came, and what to do:

>>> raise CF2Error("Expected `nodes` to lie in 0..699", got=-1, do="Pass ids of nodes of the graph.")
Traceback (most recent call last):
...
cf2.errors.CF2Error: Expected `nodes` to lie in 0..699, but got -1. Pass ids of nodes of the graph.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NOTHING = object()


class CF2Error(Exception):
    """A mistake in the input, said so that the reader can mend it."""

    def __init__(self, expected: str, *, got: object = _NOTHING, do: str = "") -> None:
        message = expected.rstrip(".")
        if got is not _NOTHING:
            message += f", but got {got}"
        message += "."
        super().__init__(f"{message} {do}" if do else message)


def require(condition: bool, expected: str, *, got: object = _NOTHING, do: str = "") -> None:
    """Raise a CF2Error unless the condition holds."""
    if not condition:
        raise CF2Error(expected, got=got, do=do)


def require_number(name: str, value: object, low: float, high: float = float("inf"), *, integer: bool = False) -> None:
    """Refuse anything but a number (or a whole number) from `low` to `high`, both included."""
    kinds: tuple[type, ...] = (int,) if integer else (int, float)
    good = isinstance(value, kinds) and not isinstance(value, bool)
    if not good or not low <= value <= high:  # type: ignore[operator]
        what = "a whole number" if integer else "a number"
        span = f"from {low} to {high}" if high != float("inf") else f"of at least {low}"
        raise CF2Error(f"Expected `{name}` to be {what} {span}", got=repr(value))


def unknown_name(kind: str, name: object, known: Iterable[str]) -> CF2Error:
    """The error for a name that is not in a registry, with the nearest known one."""
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    do = f"Did you mean {near[0]!r}?" if near else ""
    return CF2Error(f"Expected {kind} to be one of {', '.join(known)}", got=repr(name), do=do)
