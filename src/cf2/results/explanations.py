"""Explanations: many results, in the order in which they were asked for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from cf2.errors import CF2Error, require
from cf2.results.explanation import Explanation
from cf2.spec import Key

if TYPE_CHECKING:
    import pandas


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
            row: dict[str, Any] = {"key": e.key, "prediction": e.prediction, "label": e.label, "size": e.size}
            row |= {n: getattr(e, n) for n in ("sufficient", "necessary", "minimal", "optimal", "status", "note")}
            row |= {"lower_bound": e.lower_bound}
            row |= {"probability": float(e.probabilities[e.prediction])}
            row |= {"only": float(e.probabilities_only[e.prediction])}
            row |= {"without": float(e.probabilities_without[e.prediction])}
            row |= {"edges": e.edges.tolist(), "features": e.features.tolist(), "units": e.num_units}
            row |= {n: getattr(e, n) for n in ("method", "seed", "evaluations", "seconds")}
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write a `.parquet` or `.json` file that `cf2.load` reads back exactly."""
        from cf2.results import files

        return files.save(self, _path(path))

    def plot(
        self, index: int = 0, *, words: bool = True, probabilities: bool = True, size: tuple[float, float] = (9.0, 4.8)
    ) -> Any:
        """Draw one of them; the other parameters are those of `Explanation.plot`."""
        return self.items[self._place(index)].plot(
            context=self.context, words=words, probabilities=probabilities, size=size
        )

    def report(self, path: str | Path, *, pictures: int = 60, rows: int = 20_000, title: str = "") -> Path:
        """Write one self-contained HTML page about all of them.

        Parameters
        ----------
        path : str or Path
            The file to write.
        pictures, rows : int
            How many instances are drawn, and how many lines the table has; the page says what is left out.
        title : str
            The heading; without one it says what was explained.

        Returns
        -------
        Path
            The file that was written.
        """
        from cf2.report.html import write_report

        require(isinstance(title, str), "Expected `title` to be text", got=repr(title)[:80])
        return write_report([self], _path(path), pictures=pictures, rows=rows, title=title)

    def _repr_html_(self) -> str:
        from cf2.report.html import explanations_html

        return explanations_html(self)


def _path(given: Any) -> Path:
    require(isinstance(given, str | PathLike), "Expected the path of a file to write", got=repr(given)[:80])
    return Path(given)
