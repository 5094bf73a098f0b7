"""What `Explanations.where` asks of each explanation: attributes, a status, a class by number or name."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.errors import CF2Error, require, unknown_name
from cf2.options import Key
from cf2.results.explanation import Explanation, UnitTable, stored_fields

if TYPE_CHECKING:
    import pandas

    from cf2.patterns.edit_rules import EditRules
    from cf2.patterns.pattern import Pattern
    from cf2.patterns.summary import Patterns

# -- where -----------------------------------------------------------------------------------------------


STATUSES = ("found", "impossible", "not found", "unverified", "not predicted", "empty", "refused")
_CLASSES = ("prediction", "label", "target", "explained")  # attributes that hold a class
_FACTS = ("size", "explained", "value", "num_units")


def test_for(wanted: Mapping[str, Any], classes: Sequence[str]) -> Callable[[Explanation], bool]:
    """The test that an explanation has these values, each one or any of several; refuses names that nothing has."""
    numbered = {name: [_number(name, one, classes) for one in _several(value)] for name, value in wanted.items()}

    def has(e: Explanation, name: str, values: Sequence[Any]) -> bool:
        own = getattr(e, name)
        return any(own is one or own == one for one in values)

    return lambda e: all(has(e, name, values) for name, values in numbered.items())


def _several(value: Any) -> Any:
    return value if isinstance(value, list | set | frozenset | range) else (value,)


def _number(attribute: str, value: Any, classes: Sequence[str]) -> Any:
    """A value of an attribute, of a class its number."""
    if not hasattr(Explanation, attribute) and attribute not in Explanation.__dataclass_fields__:
        known = [*Explanation.__dataclass_fields__, *(n for n in vars(Explanation) if n in _FACTS)]
        raise unknown_name("an attribute of an explanation", attribute, known)
    if attribute == "status" and value not in STATUSES:
        raise unknown_name("`status`", value, STATUSES)
    if attribute not in _CLASSES or not isinstance(value, str):
        return value
    require(bool(classes), f"Expected `{attribute}` as a number without `class_names`", got=repr(value)[:80])
    if value not in classes:
        raise unknown_name(f"`{attribute}`", value, classes)
    return classes.index(value)


# -- same ------------------------------------------------------------------------------------------------


def same_results(one: Sequence[Explanation], other: Sequence[Explanation]) -> bool:
    """Whether two lists explain the same keys with the same sets, scores, probabilities and verdicts."""
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))


def _same(one: Any, other: Any) -> bool:
    for name in (f.name for f in stored_fields(type(one)) if f.name != "seconds"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, UnitTable):
            equal = _same(mine, theirs)
        else:
            equal = np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs
        if not equal:
            return False
    return True


# -- explanations ----------------------------------------------------------------------------------------


class _NoSuchIndex(CF2Error, IndexError):
    """Also an IndexError, as loops and other code expect it of a sequence."""


@dataclass(frozen=True, eq=False)
class Explanations(Sequence[Explanation]):
    """Explanations of many predictions, in the order in which they were asked for.

    Attributes
    ----------
    items : tuple of Explanation
    context : dict
        What a reader needs beside them: the data set's name, `class_names`, the model, the `spec` of the request.
    """

    items: tuple[Explanation, ...]
    context: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = (e if e.context is self.context else replace(e, context=self.context) for e in self.items)
        object.__setattr__(self, "items", tuple(known))

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> Explanations: ...
    def __getitem__(self, index: int | slice) -> Explanation | Explanations:
        if not isinstance(index, slice):
            return self.items[self._place(index)]
        try:
            return replace(self, items=self.items[index])
        except (TypeError, ValueError) as error:
            raise CF2Error("Expected a slice of whole numbers", got=repr(index)) from error

    def _place(self, index: Any) -> int:
        try:
            place = operator.index(index)
        except (TypeError, RuntimeError) as error:
            cure = "at(key) finds the explanation of a node or graph, only(test) those that pass a test."
            raise CF2Error("Expected an index or a slice", got=repr(index)[:80], do=cure) from error
        if not -len(self) <= place < len(self):
            raise _NoSuchIndex(f"Expected an index below {len(self)}", got=place)
        return place

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.items)

    def __add__(self, other: Explanations) -> Explanations:
        require(isinstance(other, Explanations), "Expected Explanations to add", got=type(other).__name__)
        return replace(self, items=self.items + other.items)

    def __repr__(self) -> str:
        if not self.items:
            return "Explanations(none)"
        s = self.summary()
        return f"Explanations(n={s['n']}, pn={s['pn']:.3f}, ps={s['ps']:.3f}, fns={s['fns']:.3f}, size={s['size']:.2f})"

    def at(self, key: Key) -> Explanation:
        """The explanation of a key: a node's id, or a graph's position."""
        try:
            wanted = tuple(key) if isinstance(key, list | tuple) else operator.index(key)
        except Exception:  # of what is no key
            wanted = None
        for e in self.items:
            if e.key == wanted:
                return e
        some = ", ".join(str(e.key) for e in self.items[:8]) + (", …" if len(self) > 8 else "")
        raise CF2Error(f"Expected the key of one of {len(self)} explanations ({some})", got=repr(key)[:80])

    def only(self, test: Callable[[Explanation], bool]) -> Explanations:
        """Those that pass a test, with the same context."""
        require(callable(test), "Expected a function that is given each explanation", got=repr(test)[:80])
        return replace(self, items=tuple(e for e in self.items if test(e)))

    def where(self, **wanted: Any) -> Explanations:
        """Those whose attributes have these values, as in `found.where(status="found", prediction=1)`.

        A list or set stands for any of its values, and a class may be given by its name.
        """

        return self.only(test_for(wanted, list(self.context.get("class_names") or ())))

    def summary(self) -> dict[str, Any]:
        """The paper's metrics over all instances: n, pn, ps, fns, size, and the cost."""
        from cf2.results import metrics

        return metrics.summary(self)

    def stability(self) -> float:
        """The mean Jaccard overlap between explanations of the same instance under different seeds."""
        from cf2.results import metrics

        return metrics.stability(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row per explanation; sets are lists."""
        import pandas

        rows = []
        for e in self.items:
            row: dict[str, Any] = {"key": e.key, "prediction": _said(e), "label": e.label, "size": e.size}
            row |= {n: getattr(e, n) for n in ("sufficient", "necessary", "minimal", "optimal", "status", "note")}
            row |= {"lower_bound": e.lower_bound}
            row |= {"probability": float(e.probabilities[e.prediction])}
            row |= {"only": float(e.probabilities_only[e.prediction])}
            row |= {"without": float(e.probabilities_without[e.prediction])}
            row |= {"edges": _plain(e.edges), "features": _plain(e.features), "units": e.num_units}
            row |= {n: getattr(e, n) for n in ("method", "seed", "evaluations", "seconds")}
            rows.append(row)
        return pandas.DataFrame(rows)

    def types(self) -> pandas.DataFrame:
        """Which types carried the answers: a row per edge type, and per node type of features.

        `chosen` of `units` were in an explanation, and the type is in a `share` of all explanations.
        """
        import pandas

        made: dict[Any, list[int]] = {}
        for e in self.items:
            for name, (chosen, units) in e.by_type().items():
                row = made.setdefault(name, [0, 0, 0])
                made[name] = [row[0] + chosen, row[1] + units, row[2] + (chosen > 0)]
        rows = [
            {"type": name, "chosen": chosen, "units": units, "share": inside / max(len(self), 1)}
            for name, (chosen, units, inside) in made.items()
        ]
        rows.sort(key=lambda row: (-row["share"], -row["chosen"]))
        return pandas.DataFrame(rows, columns=["type", "chosen", "units", "share"])

    def save(self, path: str | Path) -> Path:
        """Write a `.parquet` or `.json` file that `cf2.load` reads back exactly."""
        from cf2.results import files

        return files.save(self, _path(path))

    def to_csv(self, path: str | Path) -> Path:
        """Write the table of `to_pandas` as a CSV file; sets are lists in a cell."""
        where = _path(path)
        self.to_pandas().to_csv(where, index=False)
        return where

    def plot(
        self,
        index: int = 0,
        *,
        ax: Any = None,
        layout: Any = None,
        path: str | Path | None = None,
        words: bool = True,
        probabilities: bool = True,
        size: tuple[float, float] = (9.0, 4.8),
    ) -> Any:
        """Draw one of them; the other parameters are those of `Explanation.plot`."""
        one = self.items[self._place(index)]
        return one.plot(ax=ax, layout=layout, path=path, words=words, probabilities=probabilities, size=size)

    def report(
        self,
        path: str | Path,
        *,
        pictures: int = 60,
        rows: int = 20_000,
        title: str = "",
        patterns: Patterns | None = None,
    ) -> Path:
        """Write one self-contained HTML page about all of them.

        Parameters
        ----------
        path : str or Path
            The file to write.
        pictures, rows : int
            How many instances are drawn, and how many lines the table has; the page says what is left out.
        title : str
            The heading; without one it says what was explained.
        patterns : Patterns, optional
            What `patterns` gave, to be shown by class.

        Returns
        -------
        Path
            The file that was written.
        """
        from cf2.patterns.summary import Patterns
        from cf2.report.html import write_report

        require(isinstance(title, str), "Expected `title` to be text", got=repr(title)[:80])
        good = patterns is None or isinstance(patterns, Patterns)
        require(good, "Expected `patterns` to be what `found.patterns()` gives", got=repr(patterns)[:80])
        return write_report([self], _path(path), pictures=pictures, rows=rows, title=title, patterns=patterns)

    def patterns(
        self,
        model: Any = None,
        data: Any = None,
        *,
        count: int = 5,
        held_out: float = 0.5,
        seed: int = 0,
        most: int = 2000,
        least: float = 0.02,
        labels: str | Sequence[str] = "auto",
        given: Sequence[Pattern] = (),
    ) -> Patterns:
        """The patterns that the answers of each class share, tested on instances that they were not found on.

        Parameters
        ----------
        model : torch.nn.Module, optional
            The model that was explained. With it, every pattern is tested by running the model on graphs from which it
            is removed, and on nothing but it. Without it, patterns are only counted in the explained graphs.
        data : Data, or a list, data set, Batch or DataLoader of Data, optional
            What was explained, beside the model.
        count : int
            The most patterns per class.
        held_out : float
            The share of all keys, explained or not, that is kept for the test.
        seed : int
            Decides which keys these are; a key is on the same side whatever else there is.
        most : int
            How many nodes or graphs beside the explained ones are looked at.
        least : float
            The share of the predictions of a class that each further pattern must cover newly.
        labels : {"auto", "degree", "class", "none"} or sequence of str
            What tells nodes apart, where there is a model: auto the elements of molecules with SMILES, else their
            features (one-hot, few distinct ones, or binned), and where these are all the same the number of their
            neighbours; degree that number; class what the model says of them (of nodes); none nothing; names stand for
            the columns of one-hot features.
        given : sequence of Pattern
            Patterns of your own that are tested beside those that are found, for every class with answers.

        Returns
        -------
        Patterns
        """
        from cf2.patterns.summary import SummaryOptions, find_patterns

        options = SummaryOptions(count, held_out, seed, most, least, labels, tuple(given))
        require(
            (model is None) == (data is None),
            "Expected a model with its data, or neither",
            got="a model alone" if data is None else "data alone",
        )
        return find_patterns(self, model, data, options)

    def rules(
        self,
        model: Any,
        data: Any,
        *,
        count: int = 10,
        held_out: float = 0.5,
        seed: int = 0,
        most: int = 2000,
        labels: str | Sequence[str] = "auto",
    ) -> EditRules:
        """The few edit rules that turn most of a class, from answers to ``question="counterfactual"``.

        A rule is what an answer changes, up to the names of nodes: "remove C–N". It is tried in up to 8 places of
        other graphs of the class, by running the model.

        Parameters
        ----------
        model, data, held_out, seed, most, labels
            As in `patterns`.
        count : int
            The most rules per class.

        Returns
        -------
        EditRules
        """
        from cf2.patterns.edit_rules import find_edit_rules
        from cf2.patterns.summary import SummaryOptions

        return find_edit_rules(self, model, data, SummaryOptions(count, held_out, seed, most, labels=labels))

    def _repr_html_(self) -> str:
        from cf2.report.html import explanations_html

        return explanations_html(self)


def _plain(found: Any) -> Any:
    """Pairs as lists; of a typed graph by type."""
    return {name: pairs.tolist() for name, pairs in found.items()} if isinstance(found, dict) else found.tolist()


def _said(e: Explanation) -> int | float:
    """The class that the model gives, whether it gives the label, or its number."""
    return {"classes": e.prediction, "multilabel": int(e.value > 0.5)}.get(e.output, e.value)


def _path(given: Any) -> Path:
    require(isinstance(given, str | PathLike), "Expected the path of a file to write", got=repr(given)[:80])
    return Path(given)
