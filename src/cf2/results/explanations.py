"""Explanations of many predictions: a sequence that filters, tabulates, saves, draws and summarises them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cf2.errors import CF2Error, require, require_path, shown, unknown_name
from cf2.models.outputs import output_kind
from cf2.options import Key
from cf2.results import metrics
from cf2.results.explanation import STATUSES, Explanation
from cf2.results.names import Results, entry

if TYPE_CHECKING:
    import pandas

    from cf2.patterns.edit_rules import EditRules
    from cf2.patterns.pattern import Pattern
    from cf2.patterns.summary import Patterns

CLASS_ATTRIBUTES = ("prediction", "label", "target", "explained")
SHARES = ("pn", "ps", "fns")
SHARES_ASKED = {"factual": ("ps",), "counterfactual": ("pn",)}  # of any other question all three mean something
COMPUTED_ATTRIBUTES = ("size", "explained", "value", "num_units")


@dataclass(frozen=True, eq=False)
class Explanations(Results[Explanation]):
    """Explanations of many predictions, in the requested order.

    Attributes
    ----------
    items : tuple of Explanation
    context : dict
        Further information for readers: the data set's name, `class_names`, the model, the `spec` of the request.
    """

    context: dict[str, Any] = field(default_factory=dict)
    index_help: ClassVar[str] = "at(key) finds the explanation of a node or graph, only(test) those that pass a test."

    def __post_init__(self) -> None:
        own = (e if e.context is self.context else replace(e, context=self.context) for e in self.items)
        object.__setattr__(self, "items", tuple(own))

    def __add__(self, other: Explanations) -> Explanations:
        require(isinstance(other, Explanations), "Expected Explanations to add", got=type(other).__name__)
        return replace(self, items=self.items + other.items)

    def __repr__(self) -> str:
        if not self.items:
            return "Explanations(none)"
        s = self.summary()
        questions = list(dict.fromkeys(e.question for e in self.items))
        shares = SHARES_ASKED.get(questions[0], SHARES) if len(questions) == 1 else SHARES
        asked = "" if questions == ["why"] else f"question={'+'.join(questions)!r}, "
        measured = ", ".join(f"{name}={s[name]:.3f}" for name in shares)
        return f"Explanations({asked}n={s['n']}, {measured}, size={s['size']:.2f})"

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
        raise CF2Error(f"Expected the key of one of {len(self)} explanations ({some})", got=shown(key, 80))

    def only(self, test: Callable[[Explanation], bool]) -> Explanations:
        """The explanations that pass a test."""
        require(callable(test), "Expected a function that is given each explanation", got=shown(test, 80))
        return replace(self, items=tuple(e for e in self.items if test(e)))

    def where(self, **wanted: Any) -> Explanations:
        """Filter by attribute values, for example `found.where(status="found", prediction=1)`.

        A list or set matches any of its values; classes may be given by name.
        """
        classes = list(self.context.get("class_names") or ())
        values = {name: _values(name, value, classes) for name, value in wanted.items()}
        return self.only(lambda e: all(getattr(e, name) in those for name, those in values.items()))

    def summary(self) -> dict[str, Any]:
        """The paper's metrics over all instances: n, pn, ps, fns, size, and the cost."""
        return metrics.summary(self)

    def stability(self) -> float:
        """The mean Jaccard overlap between explanations of the same instance under different seeds."""
        return metrics.stability(self)

    def to_pandas(self) -> pandas.DataFrame:
        """A table with one row per explanation; sets are lists.

        `names` are the names of the chosen units, `edits` the edits of a counterfactual, `rank` the rank among several
        answers. There are columns for SMILES and SMARTS of molecules, and for class names if `class_names` are given.
        """
        import pandas

        from cf2.report.words import short_said

        smiles = self.context.get("smiles") or {}
        first = ("label", "size", "sufficient", "necessary", "minimal", "optimal", "status", "note", "lower_bound")
        outputs = {"probability": "probabilities", "only": "probabilities_only", "without": "probabilities_without"}
        measured = ("ps", "pn", "pns") if any(e.contexts for e in self.items) else ()
        edited = any(e.question == "counterfactual" for e in self.items)
        named = bool(self.context.get("class_names"))
        rows = [
            {"key": e.key, "rank": e.rank}
            | ({"smiles": entry(smiles, e.key), "smarts": e.smarts} if smiles else {})
            | ({"edited_smiles": e.edited_smiles} if smiles and e.question == "counterfactual" else {})
            | {"prediction": output_kind(e.output).answer(e.prediction, e.value)}
            | ({"prediction_name": short_said(e)} if named else {})
            | {name: getattr(e, name) for name in first}
            | {name: float(getattr(e, output)[e.prediction]) for name, output in outputs.items()}
            | ({"chosen": e.chosen_names} if e.task == "input" else {})
            | {"edges": _lists(e.edges), "features": _lists(e.features), "units": e.num_units}
            | {"names": e.chosen_names}
            | ({"edits": e.edits} if edited else {})
            | {name: None if (value := getattr(e, name)) is None else value[0] for name in measured}
            | {name: getattr(e, name) for name in ("method", "seed", "evaluations", "seconds")}
            for e in self.items
        ]
        return pandas.DataFrame(rows)

    def types(self) -> pandas.DataFrame:
        """How often each type was chosen: one row per edge type, and per node type of features.

        `chosen` of `units` are in an explanation; `share` is the share of explanations that contain the type.
        """
        import pandas

        counts = [(name, *count, count[0] > 0) for e in self.items for name, count in e.by_type().items()]
        table = pandas.DataFrame(counts, columns=["type", "chosen", "units", "share"])
        table = table.groupby("type", sort=False, as_index=False).sum()
        table["share"] /= max(len(self), 1)
        return table.sort_values(["share", "chosen"], ascending=False, ignore_index=True)

    def save(self, path: str | Path) -> Path:
        """Write a `.parquet` or `.json` file that `cf2.load` reads back exactly."""
        from cf2.results import files

        return files.save(self, path)

    def to_csv(self, path: str | Path) -> Path:
        """Write the table of `to_pandas` as a CSV file; sets are lists in a cell."""
        path = require_path(path, "a file to write")
        self.to_pandas().to_csv(path, index=False)
        return path

    def plot(self, index: int | None = None, *, path: str | Path | None = None, **options: Any) -> Any:
        """Draw what the explanations of each class contain, or draw one explanation.

        Parameters
        ----------
        index : int, optional
            Position of the explanation to draw; further options are those of `Explanation.plot`. Default: draw the
            share of answers of each class that contain each feature, edge type, atom or label, with 95 % intervals, and
            the sizes.
        path : str or Path, optional
            Also write the picture to this file, .png, .svg or .pdf.

        Returns
        -------
        matplotlib.figure.Figure
        """
        if index is None and (len(self) == 1 or options):
            index = 0
        if index is not None:
            return self.items[self.position(index)].plot(path=path, **options)
        from cf2.report.plots import cohort

        return cohort(self, path=path)

    def widget(self, model: Any, data: Any) -> Any:
        """A widget for Jupyter, VS Code and Colab: click an edge or feature to remove it and see the new prediction.

        Parameters
        ----------
        model, data
            The explained model and data; the model runs in the kernel. Needs the extra `notebook`.

        Returns
        -------
        anywidget.AnyWidget
            Its `index` is the position of the explanation shown, `removed` the rows of `units` that are removed.
        """
        from cf2.report.live import widget

        return widget(self, model, data)

    def report(
        self,
        path: str | Path,
        *,
        pictures: int = 60,
        rows: int = 20_000,
        title: str = "",
        patterns: Patterns | None = None,
    ) -> Path:
        """Write one self-contained HTML page about all explanations.

        Parameters
        ----------
        path : str or Path
            The file to write.
        pictures, rows : int
            Maximum number of instances to draw, and of table rows; the page says how many are left out.
        title : str
            The heading. Default: what was explained.
        patterns : Patterns, optional
            Result of `patterns`, shown by class.

        Returns
        -------
        Path
            The file that was written.
        """
        from cf2.patterns.summary import Patterns
        from cf2.report.html import write_report

        require(isinstance(title, str), "Expected `title` to be text", got=shown(title, 80))
        good = patterns is None or isinstance(patterns, Patterns)
        require(good, "Expected `patterns` to be what `found.patterns()` gives", got=shown(patterns, 80))
        path = require_path(path, "a file to write")
        return write_report([self], path, pictures=pictures, rows=rows, title=title, patterns=patterns)

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
        """Patterns that answers of a class share, tested on held-out instances.

        Parameters
        ----------
        model : torch.nn.Module, optional
            The model that was explained. With it, every pattern is tested by running the model on graphs from which it
            is removed, and on nothing but it. Without it, patterns are only counted in the explained graphs.
        data : Data, or a list, data set, Batch or DataLoader of Data, optional
            The data that was explained; required with `model`.
        count : int
            Maximum number of patterns per class.
        held_out : float
            Share of all keys, explained or not, that is held out for testing.
        seed : int
            Selects the held-out keys; whether a key is held out does not depend on the other keys.
        most : int
            Maximum number of additional nodes or graphs to test on.
        least : float
            Minimum share of the predictions of a class that each further pattern must cover in addition.
        labels : {"auto", "degree", "class", "none"} or sequence of str
            Node labels, if there is a model. auto: elements for molecules with SMILES, else features (one-hot, few
            distinct ones, or binned), or the degree if all features are equal. degree: the number of neighbours. class:
            the predicted class (for nodes). none: no labels. A sequence: names of the columns of one-hot features.
        given : sequence of Pattern
            Your own patterns, tested in addition to those found, for every class with answers.

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
        """Edit rules that change most predictions of a class, from answers to ``question="counterfactual"``.

        A rule is the edits of an answer without node ids, such as "remove C–N". It is tested in up to 8 places of other
        graphs of the class, by running the model.

        Parameters
        ----------
        model, data, held_out, seed, most, labels
            As in `patterns`.
        count : int
            Maximum number of rules per class.

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


def by_key(found: Iterable[Explanation]) -> Iterator[list[Explanation]]:
    """All answers of one key together; what was asked for twice comes twice."""
    answers: list[Explanation] = []
    for e in found:
        if answers and (e.rank <= answers[-1].rank or e.key != answers[-1].key):
            yield answers
            answers = []
        answers.append(e)
    if answers:
        yield answers


def in_order(found: Iterable[Explanation], keys: Iterable[Key]) -> list[Explanation]:
    """The answers to keys in their order, the same ones again for a key that comes twice."""
    answers = {own[0].key: own for own in by_key(found)}
    return [e for key in keys for e in answers.get(key, ())]


def _values(attribute: str, given: Any, classes: Sequence[str]) -> list[Any]:
    """The values that an attribute may have, a class by its number; refuses what no explanation has."""
    known = Explanation.__dataclass_fields__
    if not hasattr(Explanation, attribute) and attribute not in known:
        raise unknown_name("an attribute of an explanation", attribute, [*known, *COMPUTED_ATTRIBUTES])
    values = list(given) if isinstance(given, list | set | frozenset | range) else [given]
    for position, value in enumerate(values):
        if attribute == "status" and value not in STATUSES:
            raise unknown_name("`status`", value, STATUSES)
        if attribute in CLASS_ATTRIBUTES and isinstance(value, str):
            require(bool(classes), f"Expected `{attribute}` as a number without `class_names`", got=shown(value, 80))
            if value not in classes:
                raise unknown_name(f"`{attribute}`", value, classes)
            values[position] = classes.index(value)
    return values


def _lists(found: Any) -> Any:
    """Pairs as lists; of a typed graph by type."""
    return {name: pairs.tolist() for name, pairs in found.items()} if isinstance(found, dict) else found.tolist()
