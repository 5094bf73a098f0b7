"""A graph made from nothing that the model gives a class with the widest margin, and how far it is from real ones.

That is the idea of XGNN (Yuan et al., KDD 2020), which trains a generator by policy gradient. Here the graph grows by
one edge at a time, all possible ones tried in packed runs of the model, under the rules that the data shows: kinds of
nodes and edges that occur, kinds that are joined, and no more neighbours than a kind ever has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from cf2.core.data import graphs_of
from cf2.core.graph import Instance
from cf2.core.modules import module_of
from cf2.core.packing import pack
from cf2.core.predictor import Predictor
from cf2.core.receptive_field import instance_chunks
from cf2.core.targets import GraphTargets
from cf2.errors import require, require_number
from cf2.results.labelled import LabelledGraphs
from cf2.results.matching import containing
from cf2.results.pattern import Pattern
from cf2.results.similarity import distances
from cf2.runs.growth import Draft, Rules, rules_of
from cf2.runs.session import Request, Session
from cf2.spec import Key, Output, Spec
from cf2.verify.criterion import PredictedClass

SHARP = 1e-6  # scores closer than this are equal
PATIENCE = 4  # edges that may be added without a wider margin


@dataclass(frozen=True, eq=False)
class Prototype:
    """A graph made from nothing, what the model says of it, and how it compares with real graphs.

    Attributes
    ----------
    graph : Data
        Features and edges, ready for the model.
    pattern : Pattern
        The same with labels.
    target : int
        The class that it was made for.
    probabilities : ndarray, shape [classes]
        What the model says of it.
    margin : float
        The probability of the class less that of the next one.
    margins : tuple of float
        The widest margin found with each number of edges, from none on.
    evaluations : int
        How many graphs the model was run on.
    nearest, distance : key, float
        The most similar real graph, and 1 less the share of neighbourhoods up to 3 hops that both have
        (Weisfeiler–Leman colours, counted as often as they occur): 0 for graphs that these do not tell apart, 1 for
        graphs that share none.
    contained, compared : int
        How many real graphs contain it, of those that were looked at.
    """

    graph: Data
    pattern: Pattern
    target: int
    probabilities: np.ndarray
    margin: float
    margins: tuple[float, ...]
    evaluations: int
    nearest: Key
    distance: float
    contained: int
    compared: int

    def __repr__(self) -> str:
        return (
            f"Prototype of class {self.target}: {self.pattern.text if self.pattern.size else 'a single node'}\n"
            f"  {len(self.pattern.labels)} nodes and {self.pattern.size} edges; probability "
            f"{self.probabilities[self.target]:.3f}, margin {self.margin:.3f}\n"
            f"  contained in {self.contained:,} of {self.compared:,} real graphs; the most similar one is "
            f"{self.nearest}, at a distance of {self.distance:.2f} (0: alike, 1: nothing in common)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON."""
        names = ("target", "margin", "evaluations", "distance", "contained", "compared")
        row: dict[str, Any] = {name: getattr(self, name) for name in names}
        row |= {"probabilities": self.probabilities.tolist(), "margins": list(self.margins), "nearest": self.nearest}
        return row | {"pattern": self.pattern.to_dict()}


def prototype(
    model: torch.nn.Module,
    data: Data | Iterable[Data],
    target: int,
    *,
    nodes: int = 20,
    width: int = 8,
    labels: Sequence[str] = (),
    most: int = 2000,
    output: Output = "auto",
    device: str | torch.device | None = None,
) -> Prototype:
    """Make the graph that a graph classifier gives a class with the widest margin, from nothing.

    Nothing is drawn at random: the same call makes the same graph.

    Parameters
    ----------
    model : torch.nn.Module
        A graph classifier; it is used as it is and left as it was.
    data : Data, or a list, data set, Batch or DataLoader of Data
        Real graphs: what is made keeps to the kinds of nodes and edges, the joined kinds and the numbers of neighbours
        that are seen in them.
    target : int
        The class.
    nodes : int
        The most nodes of the graph.
    width : int
        How many graphs are grown side by side.
    labels : sequence of str
        Names of the columns of one-hot features, such as elements.
    most : int
        How many of the real graphs are looked at, the first ones.
    output, device
        As in `cf2.explain`.

    Returns
    -------
    Prototype
    """
    require_number("nodes", nodes, 1, integer=True)
    require_number("width", width, 1, integer=True)
    require_number("most", most, 1, integer=True)
    graphs = graphs_of(data, "graph", positions=True)
    targets = GraphTargets([graphs] if isinstance(graphs, Data) else graphs)
    spec = Spec(output=output, level="graph", device=None if device is None else str(device))
    with Session(Request(module_of(model), targets, spec), fitting=True) as session:
        predictor = session.predictor
        next(iter(session.problems(list(range(min(64, len(targets)))))))  # what the model is, by real graphs
        classes = predictor.findings.columns if predictor.findings is not None else 0
        require_number("target", target, 0, max(classes, 2) - 1, integer=True)
        instances = [targets.instance(key) for key in range(min(most, len(targets)))]
        rules, rows = rules_of(instances, predictor.adapter.takes, labels)
        return _grown(predictor, rules, LabelledGraphs.join(rows, rules.directed), target, nodes, width)


def _grown(predictor: Predictor, rules: Rules, real: LabelledGraphs, target: int, nodes: int, width: int) -> Prototype:
    front = [Draft((kind,)) for kind in range(len(rules.labels))]
    best: tuple[float, Draft, Tensor] | None = None
    margins: list[float] = []
    waited, evaluations = 0, 0
    while front and waited <= PATIENCE:
        outputs, slack, margin = _judged(predictor, [rules.instance(d, k) for k, d in enumerate(front)], target)
        evaluations += len(front)
        margins.append(max(margin))
        # Equal ones by what they are, so that the order in which they were made does not matter.
        ranked = sorted(range(len(front)), key=lambda row: (-round(slack[row] / SHARP), front[row].nodes, row))
        first = ranked[0]
        if best is None or slack[first] > best[0] + SHARP:
            best, waited = (slack[first], front[first], outputs[first]), 0
        else:
            waited += 1
        front = _next(rules, [front[row] for row in ranked], width, nodes)
    assert best is not None
    return _compared(rules, real, best[1], best[2].float().cpu().numpy(), target, tuple(margins), evaluations)


def _next(rules: Rules, ranked: Sequence[Draft], width: int, nodes: int) -> list[Draft]:
    """One edge more on the best few graphs that differ, each result once."""
    kept: dict[Pattern, Draft] = {}
    for draft in ranked:
        if len(kept) >= width:
            break
        kept.setdefault(rules.pattern(draft), draft)
    grown = {rules.pattern(more): more for draft in kept.values() for more in rules.steps(draft, nodes)}
    return list(grown.values())


def _judged(
    predictor: Predictor, instances: Sequence[Instance], target: int
) -> tuple[Tensor, list[float], list[float]]:
    """What the model says of graphs, and by how much that is the class."""
    takes = predictor.adapter.takes
    parts = [predictor.predict(pack(part, takes=takes)) for part in instance_chunks(predictor, instances)]
    outputs = torch.cat(parts)
    require(target < outputs.size(1), f"Expected `target` to be a class from 0 to {outputs.size(1) - 1}", got=target)
    criterion = PredictedClass(torch.full((len(outputs),), target, device=outputs.device))
    return outputs, criterion.slack(outputs).tolist(), criterion.margin(outputs).tolist()


def _compared(
    rules: Rules,
    real: LabelledGraphs,
    draft: Draft,
    probabilities: np.ndarray,
    target: int,
    margins: tuple[float, ...],
    evaluations: int,
) -> Prototype:
    """The finished graph beside the real ones."""
    instance, pattern = rules.instance(draft, 0), rules.pattern(draft)
    far = distances(pattern, real)
    nearest = int(np.flatnonzero(far == far.min())[0])
    others = np.delete(probabilities, target)
    extras: dict[str, Any] = {name: value for name, (_, value) in instance.extras.items()}
    return Prototype(
        Data(x=instance.x, edge_index=instance.edge_index, **extras),
        pattern,
        target,
        probabilities,
        float(probabilities[target] - others.max()),
        margins,
        evaluations,
        real.keys[nearest],
        float(far[nearest]),
        int(containing(pattern, real).contained.sum()),
        len(real),
    )
