"""Explanation and Explanations: frozen results, tables, JSON and Parquet round trip."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from cf2.errors import CF2Error, require

if TYPE_CHECKING:
    import pandas

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why the model said `prediction` of one node or graph, and what of it was verified.

    The units of the computation graph are `unit_edges` ([E, 2], the user's node ids) and `unit_features`
    ([F, 2], node and column); `scores` and `selected` run over both, edges first. `sufficient` and `necessary`
    are verdicts of the model on really reduced graphs; `minimal` (no single unit can go) and `optimal` (proved
    smallest) are None where nobody checked. `status` is one of

    - ``found``: the set passes both tests,
    - ``impossible``: proved that no set passes both,
    - ``not found``: no passing set within the budget; the best on offer is given,
    - ``unverified``: the method does not look for a passing set, the verdicts are still true,
    - ``empty``: there is nothing to mask; `note` says why,
    - ``refused``: there are more units than `max_units`; none are kept here, and `note` says how many.
    """

    key: int
    task: str
    prediction: int
    unit_edges: np.ndarray
    unit_features: np.ndarray
    scores: np.ndarray
    selected: np.ndarray
    probabilities: np.ndarray  # [classes], on the whole graph
    only: np.ndarray  # [classes], on the explanation alone
    without: np.ndarray  # [classes], on all but the explanation
    sufficient: bool
    necessary: bool
    minimal: bool | None = None
    optimal: bool | None = None
    status: str = "unverified"
    note: str = ""
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    evaluations: int = 0
    seconds: float = 0.0
    directed: bool = False
    label: int | None = None  # the true class, where known

    def __post_init__(self) -> None:
        units = len(self.unit_edges) + len(self.unit_features)
        require(
            len(self.scores) == units == len(self.selected),
            f"Expected {units} scores and selections, one a unit",
            got=f"{len(self.scores)} and {len(self.selected)}",
        )

    @property
    def size(self) -> int:
        """The number of units: undirected edges and feature entries."""
        return int(self.selected.sum())

    @property
    def num_units(self) -> int:
        """How many units there were to choose from."""
        return len(self.selected)

    @property
    def edges(self) -> np.ndarray:
        """The edges of the explanation [k, 2] in the user's node ids, both directions if undirected."""
        pairs = self.unit_edges[self.selected[: len(self.unit_edges)]]
        return pairs if self.directed else np.concatenate([pairs, pairs[:, ::-1]])

    @property
    def features(self) -> np.ndarray:
        """The feature entries of the explanation [k, 2]: node and column."""
        chosen: np.ndarray = self.unit_features[self.selected[len(self.unit_edges) :]]
        return chosen

    @property
    def edge_scores(self) -> np.ndarray:
        return self.scores[: len(self.unit_edges)]

    @property
    def feature_scores(self) -> np.ndarray:
        return self.scores[len(self.unit_edges) :]

    def edge_mask(self, edge_index: Any, *, soft: bool = False) -> np.ndarray:
        """A value for every column of the user's `edge_index`: 1 if chosen (or the score); 0 outside."""
        values = (self.scores if soft else self.selected.astype(np.float32))[: len(self.unit_edges)]
        tail, head = np.asarray(edge_index)
        if not len(values):
            return np.zeros(len(tail), dtype=np.float32)
        high = max(int(self.unit_edges.max()), int(tail.max()), int(head.max())) + 1
        low_end, high_end = (tail, head) if self.directed else (np.minimum(tail, head), np.maximum(tail, head))
        known = self.unit_edges[:, 0] * high + self.unit_edges[:, 1]
        order = np.argsort(known)
        wanted = low_end * high + high_end
        place = np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)
        hit = known[order[place]] == wanted
        return np.where(hit, values[order[place]], 0.0).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in plain.items()}

    @staticmethod
    def from_dict(row: dict[str, Any]) -> Explanation:
        """The inverse of `to_dict`."""
        values = dict(row)
        for name, (dtype, shape) in ARRAYS.items():
            flat: np.ndarray = np.asarray(
                list(map(list, values[name])) if shape == (-1, 2) else values[name], dtype=dtype
            )
            values[name] = flat.reshape(shape)
        return Explanation(**values)

    def summary(self) -> str:
        """The verdicts in words.

        >>> Explanation.__name__
        'Explanation'
        """
        from cf2.report.words import verdict

        return verdict(self)

    def _repr_html_(self) -> str:
        from cf2.report.html import explanation_html

        return explanation_html(self)


PAIRS, _FLAT = (-1, 2), (-1,)
ARRAYS: dict[str, tuple[type, tuple[int, ...]]] = {
    "unit_edges": (np.int64, PAIRS),
    "unit_features": (np.int64, PAIRS),
    "scores": (np.float32, _FLAT),
    "selected": (np.bool_, _FLAT),
    "probabilities": (np.float32, _FLAT),
    "only": (np.float32, _FLAT),
    "without": (np.float32, _FLAT),
}


@dataclass(frozen=True, eq=False)
class Explanations(Sequence[Explanation]):
    """Explanations of many predictions, in the order in which they were asked for.

    `context` holds what a reader needs beside them: the data set's name, `class_names`, the model.
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
        if isinstance(index, slice):
            return replace(self, items=self.items[index])
        return self.items[index]

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.items)

    def __add__(self, other: Explanations) -> Explanations:
        return replace(self, items=self.items + other.items)

    def __repr__(self) -> str:
        if not self.items:
            return "Explanations(none)"
        s = self.summary()
        return f"Explanations(n={s['n']}, pn={s['pn']:.3f}, ps={s['ps']:.3f}, fns={s['fns']:.3f}, size={s['size']:.2f})"

    def summary(self) -> dict[str, Any]:
        """The paper's metrics over all instances: n, pn, ps, fns, size, and the cost."""
        from cf2 import metrics

        return metrics.summary(self)

    def stability(self) -> float:
        """Mean Jaccard overlap between explanations of the same instance under different seeds."""
        from cf2 import metrics

        return metrics.stability(self)

    def to_pandas(self) -> pandas.DataFrame:
        """One row an explanation; sets as lists."""
        import pandas

        rows = []
        for e in self.items:
            row: dict[str, Any] = {"key": e.key, "prediction": e.prediction, "label": e.label, "size": e.size}
            row |= {n: getattr(e, n) for n in ("sufficient", "necessary", "minimal", "optimal", "status", "note")}
            row |= {"probability": float(e.probabilities[e.prediction])}
            row |= {"only": float(e.only[e.prediction]), "without": float(e.without[e.prediction])}
            row |= {"edges": e.edges.tolist(), "features": e.features.tolist(), "units": e.num_units}
            row |= {n: getattr(e, n) for n in ("method", "seed", "evaluations", "seconds")}
            rows.append(row)
        return pandas.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write a `.parquet` or `.json` file that `cf2.load` reads back exactly."""
        path = Path(path)
        require(
            path.parent.is_dir(), "Expected a directory to save in", got=f"{str(path.parent)!r}, which is not there"
        )
        require(
            path.suffix in (".parquet", ".json"),
            "Expected a path that ends in .parquet or .json",
            got=repr(str(path)),
        )
        if path.suffix == ".json":
            text = json.dumps({"format": FORMAT, "context": self.context, "explanations": [e.to_dict() for e in self]})
            path.write_text(text, encoding="utf-8")
        else:
            from cf2 import parquet

            parquet.write(self, path)
        return path

    def plot(self, index: int = 0, **options: Any) -> Any:
        """A matplotlib figure of one explanation."""
        from cf2.report.figures import plot

        require(-len(self) <= index < len(self), f"Expected an index below {len(self)}", got=index)
        return plot(self.items[index], context=self.context, **options)

    def report(self, path: str | Path, **options: Any) -> Path:
        """One self-contained HTML page about all of them."""
        from cf2.report.html import write_report

        return write_report([self], path, **options)

    def _repr_html_(self) -> str:
        from cf2.report.html import explanations_html

        return explanations_html(self)


def load(path: str | Path) -> Explanations:
    """Read what `Explanations.save` wrote."""
    path = Path(path)
    require(path.is_file(), "Expected a file of explanations", got=f"{str(path)!r}, which is not there")
    try:
        if path.suffix == ".json":
            stored = json.loads(path.read_text(encoding="utf-8"))
            rows = stored["explanations"]
            return Explanations(tuple(Explanation.from_dict(row) for row in rows), stored["context"])
        from cf2 import parquet

        return parquet.read(path)
    except CF2Error:
        raise
    except Exception as error:
        raise CF2Error(
            f"Expected {str(path)!r} to hold explanations", got=f"{type(error).__name__}: {error}"
        ) from error


def settings_dict(settings: Any) -> dict[str, Any]:
    """A frozen settings dataclass as plain values."""
    return asdict(settings)
