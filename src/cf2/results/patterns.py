"""What the model looks for: the patterns that the answers of a class share, and how they fare on other instances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.core.whole_files import write_bytes
from cf2.errors import require
from cf2.results.intervals import Estimate
from cf2.results.pattern import Pattern
from cf2.spec import Key

if TYPE_CHECKING:
    import pandas

MEASURES = ("coverage", "precision", "necessity", "sufficiency", "sufficiency_one", "chance")


@dataclass(frozen=True, eq=False)
class FoundPattern:
    """A pattern of a class, and what it does on instances that it was not found on.

    Attributes
    ----------
    pattern : Pattern
    prediction : int
        The class whose answers share it.
    support, answers : int
        How many answers contain it, of how many that patterns of the class were found in.
    coverage : Estimate or None
        Of the predictions of the class, the share whose graph contains it.
    precision : Estimate or None
        Of the graphs that contain it, the share that gets the class.
    necessity : Estimate or None
        Of the predictions of the class that contain it, the share that leaves the class when every occurrence is
        removed.
    sufficiency, sufficiency_one : Estimate or None
        Of the same, the share that keeps the class when only the occurrences are kept, and when only one of them is
        (some one, of those that are tried).
    chance : Estimate or None
        Of the same, the share that leaves the class when as many other edges are removed, drawn by the seed: what
        `necessity` is to be compared with.
    contained, undecided : int
        How many tested graphs contain it, and in how many it could occur in too many ways to be decided.
    keys : tuple of keys
        The explained instances whose answer contains it.
    """

    pattern: Pattern
    prediction: int
    support: int
    answers: int
    coverage: Estimate | None = None
    precision: Estimate | None = None
    necessity: Estimate | None = None
    sufficiency: Estimate | None = None
    sufficiency_one: Estimate | None = None
    chance: Estimate | None = None
    contained: int = 0
    undecided: int = 0
    keys: tuple[Key, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        shares = {name: None if (e := getattr(self, name)) is None else list(map(float, e)) for name in MEASURES}
        counts = {name: getattr(self, name) for name in ("prediction", "support", "answers", "contained", "undecided")}
        return {**counts, **shares, "pattern": self.pattern.to_dict(), "keys": [_plain(key) for key in self.keys]}


@dataclass(frozen=True, eq=False)
class Patterns(Sequence[FoundPattern]):
    """The patterns of every class, the one that covers most first, and how they were found and tested.

    Attributes
    ----------
    items : tuple of FoundPattern
    about : dict
        The split (`seed`, `held_out`), how many answers the patterns were `found_on`, and by class on how many
        predictions they were `tested`; by class the coverage of all its patterns together (`together`) and the share
        of its predictions that stay without any edge (`empty`); where a class has several patterns, the `coverage`,
        `precision` and `sufficiency` of all of them `jointly`; the overlap with the known `truth`, if there is one.
    context : dict
        What is known of the explanations: `class_names`, `atoms`, the `dataset`.
    """

    items: tuple[FoundPattern, ...]
    about: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> FoundPattern: ...
    @overload
    def __getitem__(self, index: slice) -> Patterns: ...
    def __getitem__(self, index: int | slice) -> FoundPattern | Patterns:
        if isinstance(index, slice):
            return Patterns(self.items[index], self.about, self.context)
        return self.items[index]

    def __iter__(self) -> Iterator[FoundPattern]:
        return iter(self.items)

    def classes(self) -> list[int]:
        """The classes that have patterns, ascending."""
        return sorted({one.prediction for one in self.items})

    def of(self, prediction: int) -> tuple[FoundPattern, ...]:
        """The patterns of a class, the one that covers most first."""
        return tuple(one for one in self.items if one.prediction == prediction)

    def name(self, prediction: int) -> str:
        """A class by its name, where it has one."""
        names = self.context.get("class_names") or ()
        return str(names[prediction]) if prediction < len(names) else f"class {prediction}"

    def __repr__(self) -> str:
        about = self.about
        tested = sum(about.get("tested", {}).values())
        lines = [f"Patterns found in {about.get('found_on', 0):,} answers, tested on {tested:,} other predictions:"]
        for prediction in self.classes():
            together = about.get("together", {}).get(prediction)
            lines.append(f"{self.name(prediction)}" + ("" if together is None else f" (together {_words(together)})"))
            for one in self.of(prediction):
                shares = [f"{name} {_words(e)}" for name in MEASURES if (e := getattr(one, name)) is not None]
                lines.append(f"  {one.pattern.text}: in {one.support} of {one.answers} answers; {', '.join(shares)}")
            if jointly := about.get("jointly", {}).get(prediction):
                shares = [f"{name} {_words(e)}" for name, e in jointly.items() if e is not None]
                lines.append(f"  all of them: {', '.join(shares)}")
        lines += list(about.get("notes", ()))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        rows = [{"class_name": self.name(one.prediction), **one.to_dict()} for one in self.items]
        return {"about": jsonable(self.about), "patterns": rows}

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row per pattern; every share with the ends of its interval."""
        import pandas

        rows = []
        for one in self.items:
            row: dict[str, Any] = {"class": self.name(one.prediction), "pattern": one.pattern.text}
            row |= {"smarts": one.pattern.smarts, "nodes": len(one.pattern.labels), "edges": one.pattern.size}
            row |= {"support": one.support, "answers": one.answers, "contained": one.contained}
            for name in MEASURES:
                value, low, high = getattr(one, name) or (np.nan,) * 3
                row |= {name: value, f"{name}_low": low, f"{name}_high": high}
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write `to_dict()` as a JSON file."""
        require(isinstance(path, str | PathLike), "Expected the path of a file to write", got=repr(path)[:80])
        write_bytes(Path(path), (json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n").encode())
        return Path(path)

    def _repr_html_(self) -> str:
        from cf2.report.patterns import patterns_html

        return patterns_html(self)


def _words(e: Estimate) -> str:
    return f"{100 * e.value:.0f} % ({100 * e.low:.0f}–{100 * e.high:.0f})"


def _plain(key: Key) -> Any:
    return list(key) if isinstance(key, tuple) else key


def jsonable(value: Any) -> Any:
    """Plain values; an estimate becomes its value and the two ends of its interval."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, Estimate):
        return list(map(float, value))
    return [jsonable(item) for item in value] if isinstance(value, list | tuple) else value
