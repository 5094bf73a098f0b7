"""The list of instances, filtered, sorted and cut into pages on the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cf2.errors import CF2Error, unknown_name
from cf2.options import Key
from cf2.report.words import key_id
from cf2.results.explanation import Explanation

PAGE = 20

FILTERS: dict[str, tuple[str, Callable[[Explanation], bool]]] = {
    "all": ("all", lambda e: True),
    "both": ("sufficient and necessary", lambda e: e.sufficient and e.necessary),
    "unnecessary": ("failed necessity", lambda e: not e.necessary),
    "insufficient": ("failed sufficiency", lambda e: not e.sufficient),
    "wrong": ("misclassified", lambda e: e.label is not None and e.label != e.prediction),
    "open": ("impossible, not found or refused", lambda e: e.status in ("impossible", "not found", "refused")),
}
SORTS: dict[str, tuple[str, Callable[[Explanation], Any]]] = {
    "run": ("order of the run", lambda e: 0.0),
    "largest": ("largest first", lambda e: -e.size),
    "smallest": ("smallest first", lambda e: e.size),
    "unsure": ("least sure first", lambda e: float(e.probabilities[e.prediction])),
    "key": ("instance", lambda e: _ids(e.key)),
}


@dataclass(frozen=True)
class Page:
    """One page of the list: what is on it, and where it stands."""

    items: list[Explanation]
    number: int
    pages: int
    total: int


def page(known: list[Explanation], number: object, show: object, sort: object, search: object) -> Page:
    """Page `number` (from 0) of what passes the filter; a number beyond the ends gives the nearest page."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise CF2Error("Expected the number of a page", got=repr(number))
    found = chosen(known, show, sort, search)
    pages = max(1, -(-len(found) // PAGE))
    number = min(max(number, 0), pages - 1)
    return Page(found[number * PAGE : (number + 1) * PAGE], number, pages, len(found))


def chosen(known: list[Explanation], show: object, sort: object, search: object) -> list[Explanation]:
    """All that passes the filter and the search, in their order."""
    test, order = _chosen("the filter", show, FILTERS), _chosen("the order", sort, SORTS)
    wanted = search_ids(search)
    found = [e for e in known if (not wanted or _ids(e.key) == wanted) and test(e)]
    return found if sort == "run" else sorted(found, key=order)


def page_of(known: list[Explanation], key: object, show: object, sort: object, search: object, now: int) -> int:
    """The page on which the instance of a text is, or the one that is shown `now` where it is on none."""
    places = [number for number, e in enumerate(chosen(known, show, sort, search)) if key_id(e.key) == key]
    return places[0] // PAGE if places else now


def _chosen(kind: str, name: object, table: dict[str, tuple[str, Callable[[Explanation], Any]]]) -> Any:
    """What a registry has under a name that the browser sends."""
    if not isinstance(name, str) or name not in table:
        raise unknown_name(kind, str(name)[:40], table)
    return table[name][1]


def search_ids(text: object) -> tuple[int, ...]:
    """The ids that are looked for: none for an empty field; (-1,), which no instance has, for text without any.

    >>> search_ids("17"), search_ids("(3, 17)"), search_ids("x"), search_ids(" ")
    ((17,), (3, 17), (-1,), ())
    """
    if text is None or (isinstance(text, str) and not text.strip()):
        return ()
    good = isinstance(text, str) and len(text) < 40
    return (good and tuple(map(int, re.findall(r"[0-9]+", str(text))))) or (-1,)


def _ids(key: Key) -> tuple[int, ...]:
    return key if isinstance(key, tuple) else (key,)
