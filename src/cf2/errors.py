"""The one error for everything a user can get wrong.

A message says what was expected, what came, and what to do:

>>> raise CF2Error("Expected `nodes` to lie in 0..699", got=-1, do="Pass ids of nodes of the graph.")
Traceback (most recent call last):
...
cf2.errors.CF2Error: Expected `nodes` to lie in 0..699, but got -1. Pass ids of nodes of the graph.
"""

from __future__ import annotations

import difflib
import json
import os
import stat
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NOTHING = object()
MAX_LISTED = 20  # of more names than this, only those that were probably meant are given


class CF2Error(Exception):
    """Invalid input; the message says what was expected, what was given and what to do."""

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
    number = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
    large = number and isinstance(value, int) and abs(value) >= 2**63  # torch has no larger ones
    if not number or large or not low <= value <= high:  # type: ignore[operator]
        span = f"from {low} to {high}" if high != float("inf") else f"of at least {low}"
        what = f"a {'whole ' if integer else ''}number {'below 2⁶³' if large else span}"
        raise CF2Error(f"Expected `{name}` to be {what}", got=shown(value, 80))


def shown(value: object, most: int = 200) -> str:
    """A value as an error shows it, in at most so many letters; also one that cannot print itself."""
    try:
        return repr(value)[:most]
    except Exception:  # whatever a foreign `__repr__` raises, or a number of too many digits
        return f"an object of type {type(value).__name__}"


@contextmanager
def reading(given: object, expected: str, do: str = "") -> Iterator[None]:
    """Say what was expected where a foreign object raises anything when it is looked at."""
    try:
        yield
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(expected, got=shown(given), do=do) from error


def require_path(given: object, what: str) -> Path:
    """A path from text or a path object; anything else is refused."""
    require(isinstance(given, str | os.PathLike), f"Expected the path of {what}", got=shown(given, 80))
    return Path(given)  # type: ignore[arg-type]


def require_file(path: str | os.PathLike[str], what: str, *, most: int, do: str = "") -> None:
    """Refuse what is no regular file, and a file of more than `most` bytes, without opening it.

    A pipe would never end, and a file that is far too large would fill the memory.
    """
    name = repr(os.fspath(path))
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise CF2Error(f"Expected {what}", got=f"{name}, which is not there", do=do) from None
    except (OSError, ValueError) as error:  # a loop of links, a name that cannot be
        raise CF2Error(f"Expected {what}", got=f"{name} ({os_reason(error)})", do=do) from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise CF2Error(f"Expected {what}", got=f"{name}, which is {kind}", do=do)
    limit = f"Expected {what} of at most {most:,} bytes"
    require(status.st_size <= most, limit, got=f"{name} with {status.st_size:,}", do=do)


def os_reason(error: Exception) -> str:
    """What the system says went wrong, without numbers and paths."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def own_line(error: BaseException) -> str | None:
    """`FILE:LINE` of the last line that ran in a user's own code, if the error came from there."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    others = tuple(f"{os.path.realpath(place)}{os.sep}" for place in (*libraries, os.path.dirname(__file__)))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith("<") and not os.path.realpath(frame.filename).startswith(others):
            return f"{frame.filename}:{frame.lineno}"
    return None


def extra(name: str) -> str:
    """How to install what an extra holds, as cf2 itself was installed: from a directory, or by its name."""
    from importlib import metadata
    from urllib.parse import unquote, urlparse

    try:
        origin = json.loads(metadata.distribution("cf2").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    place = urlparse(str(origin.get("url", "")))
    if place.scheme != "file":
        return f"Install it: pip install 'cf2[{name}]'."
    flag = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"Install it: pip install {flag}'{unquote(place.path)}[{name}]'."


def unknown_name(kind: str, name: object, known: Iterable[str]) -> CF2Error:
    """The error for a name that is not in a registry, with the nearest known one, or else with all of them."""
    known, got = sorted(known), shown(name, 80)
    text = name[:80] if isinstance(name, str) else got
    near = difflib.get_close_matches(text, known, n=1)
    if not near and len(known) > MAX_LISTED:
        near = difflib.get_close_matches(text, known, n=3, cutoff=0.0)
    *others, last = map(repr, near or [""])
    likely = f"{', '.join(others)} or {last}" if others else last
    do = f"Did you mean {likely}?" if near else ""
    if len(known) > MAX_LISTED:
        return CF2Error(f"Expected {kind}", got=got, do=do)
    choice = known[0] if len(known) == 1 else f"one of {', '.join(known)}"
    return CF2Error(f"Expected {kind} to be {choice}", got=got, do=do)
