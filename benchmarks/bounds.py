"""Would sound bounds shorten a proof? What share of boxes they refute, and what that costs beside trying the sets.

    python benchmarks/bounds.py [tree-cycles …] [--instances 8] [--boxes 3] [--write]

A box is a set of which some edges are undecided; it holds 2^u sets. It is refuted if, over all of it, S alone never
gives the answer, or without S the model always does. Bounds are of the difference of two logits: by intervals (IBP), by
one backward pass of linear bounds over intervals (CROWN-IBP), and with linear bounds for every neuron (CROWN). First
they are checked: against enumeration on small graphs, and, where nothing is undecided, against the model itself.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from cf2.errors import CF2Error
from cf2.methods.contract import Problem
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.models import build
from cf2.samples.sources import from_dataset
from cf2.sets.trials import Trials

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- bounds: begin -->", "<!-- bounds: end -->"
COLUMNS = ("mutag0", "nci1", "tree-cycles")  # whose models sum over neighbours
NEURONS = 1_500  # CROWN bounds every neuron by a pass of its own, where a layer has no more
Interval = tuple[Tensor, Tensor]
Found = dict[tuple[int, str], list[float]]
Costs = dict[str, list[float]]


@dataclass(frozen=True)
class Net:
    """Layers h ← ReLU(c·A·h·W + b), all of them or the last, pooled or read at a node, and a head of linear layers."""

    convs: list[tuple[Tensor, Tensor]]
    head: list[tuple[Tensor, Tensor]]
    every: bool
    target: int | None  # None: the mean over all nodes

    @classmethod
    def of(cls, model: nn.Module, target: int | None) -> Net:
        """The same function as a model of `cf2.samples.models` that sums over neighbours."""
        convs = [(conv.lin.weight.t() * getattr(conv, "scale", 1.0), conv.bias) for conv in model.convs]
        if any(conv.normalize or conv.add_self_loops for conv in model.convs):
            raise CF2Error("Expected layers that sum", got="layers that divide by degrees")
        head = [(part.weight.t(), part.bias) for part in model.head if isinstance(part, nn.Linear)]
        pairs = ([(w.detach(), b.detach()) for w, b in part] for part in (convs, head))
        return cls(*pairs, model.readout == "all", target)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Box:
    """A graph with edges that are there, and pairs (unit, to, from) of edges of which that is undecided."""

    x: Tensor
    there: Tensor  # [N, N], 1 where a message goes from column to row
    open: Tensor  # [3, m]


class Bounds:
    """Bounds over one box."""

    def __init__(self, net: Net, box: Box, *, neurons: bool = False) -> None:
        self.net, self.box = net, box
        self.maybe = torch.zeros_like(box.there)
        self.maybe.index_put_((box.open[1], box.open[2]), torch.ones(box.open.size(1)), accumulate=True)
        self.messages: list[Interval] = []
        self.before: list[Interval] = []  # of every layer, before its ReLU
        low = high = box.x
        states: list[Interval] = []
        for weight, bias in net.convs:
            low, high = _times(low, high, weight)
            self.messages.append((low, high))
            low = box.there @ low + self.maybe @ low.clamp(max=0) + bias
            high = box.there @ high + self.maybe @ high.clamp(min=0) + bias
            self.before.append((low, high))
            if neurons and low.numel() <= NEURONS and len(self.before) > 1:
                self.before[-1] = low, high = self._neurons(low, high)
            low, high = low.relu(), high.relu()
            states.append((low, high))
        kept = states if net.every else states[-1:]
        low, high = (torch.cat([state[side] for state in kept], 1) for side in (0, 1))
        low, high = (part.mean(0) if net.target is None else part[net.target] for part in (low, high))
        self.head: list[Interval] = []
        for place, (weight, bias) in enumerate(net.head):
            low, high = (part + bias for part in _times(low, high, weight))
            if neurons and place:
                eye = torch.eye(len(low))
                low = torch.maximum(low, -self.linear(-eye, place + 1))
                high = torch.minimum(high, self.linear(eye, place + 1))
            self.head.append((low, high))
            low, high = low.relu(), high.relu()

    def interval(self, rows: Tensor) -> Tensor:
        """Upper bounds of rows [K, classes] times the logits, by intervals alone."""
        weight, bias = self.net.head[-1]
        if len(self.net.head) > 1:
            low, high = (part.relu() for part in self.head[-2])
            return _times(low, high, weight @ rows.t())[1] + rows @ bias
        low, high = self.head[-1]
        return low @ rows.t().clamp(max=0) + high @ rows.t().clamp(min=0)

    def linear(self, rows: Tensor, depth: int | None = None) -> Tensor:
        """The same by a backward pass, the best of three relaxations of an undecided message."""
        return torch.stack([self._head(rows, depth or len(self.net.head), way) for way in range(3)]).amin(0)

    def _head(self, rows: Tensor, depth: int, way: int) -> Tensor:
        constant = torch.zeros(len(rows))
        for place in reversed(range(depth)):
            if place < depth - 1:
                rows, shift = _through(rows, *self.head[place])
                constant = constant + shift
            weight, bias = self.net.head[place]
            constant = constant + rows @ bias
            rows = rows @ weight.t()
        nodes = len(self.box.x)
        share = torch.full((nodes,), 1 / nodes) if self.net.target is None else torch.eye(nodes)[self.net.target]
        spread = rows[:, None] * share[None, :, None]
        count = len(self.net.convs)
        parts = list(spread.split(spread.size(2) // count, 2)) if self.net.every else [None] * (count - 1) + [spread]
        return self._layers(parts, constant, way)

    def _layers(self, parts: list[Tensor | None], constant: Tensor, way: int, *, raw: bool = False) -> Tensor:
        """Bounds of what is linear in the states after each layer; if `raw`, in the last one before its ReLU."""
        units = int(self.box.open[0].max()) + 1 if self.box.open.numel() else 0
        slopes, total = torch.zeros(len(constant), units), None
        for place in reversed(range(len(parts))):
            mine = parts[place]
            total = mine if total is None else total if mine is None else total + mine
            assert total is not None
            if not (raw and place == len(parts) - 1):
                total, shift = _through(total, *self.before[place])
                constant = constant + shift
            weight, bias = self.net.convs[place]
            constant = constant + total.sum(1) @ bias
            passed = torch.einsum("ij,kid->kjd", self.box.there, total)
            if self.box.open.numel():
                unit, to, source = self.box.open
                coefficient = total[:, to]  # [K, m, d]
                low, high = (part[source] for part in self.messages[place])
                slope, by_unit, shift = _product(coefficient, low, high, way)
                passed.index_add_(1, source, coefficient * slope)
                slopes.index_add_(1, unit, (coefficient * by_unit).sum(2))
                constant = constant + (coefficient * shift).sum((1, 2))
            total = passed @ weight.t()
        assert total is not None
        return constant + (total * self.box.x).sum((1, 2)) + slopes.clamp(min=0).sum(1)

    def _neurons(self, low: Tensor, high: Tensor) -> Interval:
        depth = len(self.before)
        shape, parts = low.shape, []
        for sign in (-1.0, 1.0):
            rows = (sign * torch.eye(low.numel())).view(-1, *shape).split(256)
            blank: list[Tensor | None] = [None] * (depth - 1)
            best = [
                torch.stack([self._layers([*blank, r], torch.zeros(len(r)), way, raw=True) for way in range(3)]).amin(0)
                for r in rows
            ]
            parts.append(torch.cat(best).view(shape))
        return torch.maximum(low, -parts[0]), torch.minimum(high, parts[1])


def _times(low: Tensor, high: Tensor, weight: Tensor) -> Interval:
    middle, radius = (low + high) / 2 @ weight, (high - low) / 2 @ weight.abs()
    return middle - radius, middle + radius


def _through(rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Upper linear bounds of rows times ReLU(z) for z in an interval: rows on z, and constants [K]."""
    wide = (high - low).clamp(min=1e-12)
    upper = torch.where(low >= 0, 1.0, torch.where(high <= 0, 0.0, high / wide))
    shift = torch.where((low < 0) & (high > 0), -low * high / wide, 0.0)
    lower = torch.where(low >= 0, 1.0, torch.where(high <= 0, 0.0, (high > -low).float()))
    return rows * torch.where(rows > 0, upper, lower), (rows.clamp(min=0) * shift).flatten(1).sum(1)


def _product(coefficient: Tensor, low: Tensor, high: Tensor, way: int) -> tuple[Tensor, Tensor, Tensor]:
    """An upper bound of c·w·m, for w in [0, 1] and m in an interval, as c·(slope·m + by_unit·w + shift)."""
    bound = torch.where(coefficient > 0, high, low)  # w·m ≤ w·high, w·m ≥ w·low
    other = torch.where(coefficient > 0, low, high)  # w·m ≤ m − low·(1 − w), w·m ≥ m − high·(1 − w)
    zero = torch.zeros_like(bound)
    if way == 1:
        return zero, bound, zero
    if way == 2:
        return zero + 1, other, -other
    rises, falls = low >= 0, high <= 0  # and without w: what lies between 0 and m
    wide = (high - low).clamp(min=1e-12)
    above = (
        torch.where(rises, 1.0, torch.where(falls, 0.0, high / wide)),
        torch.where(rises | falls, 0.0, -low * high / wide),
    )
    below = (
        torch.where(rises, 0.0, torch.where(falls, 1.0, -low / wide)),
        torch.where(rises | falls, 0.0, low * high / wide),
    )
    slope, shift = (torch.where(coefficient > 0, a, b) for a, b in zip(above, below))
    return slope, zero, shift


def refuted(bounds: Bounds, y: int, classes: int, same: bool, method: str) -> bool:
    """Whether no set of the box passes a test, by a method."""
    others = [c for c in range(classes) if c != y]
    rows = torch.zeros(len(others), classes)
    rows[torch.arange(len(others)), others], rows[:, y] = -1.0, 1.0
    rows = rows if same else -rows
    bound = bounds.interval(rows)
    if method != "IBP":
        bound = torch.minimum(bound, bounds.linear(rows))
    return bool((bound < 0).any() if same else (bound < 0).all())


def boxed(x: Tensor, edges: Tensor, unit: Tensor, there: Tensor, undecided: Tensor) -> Box:
    """The box in which units are there [U], or undecided [U]."""
    matrix = torch.zeros(len(x), len(x))
    sure = there[unit] & ~undecided[unit]
    matrix.index_put_((edges[1, sure], edges[0, sure]), torch.ones(int(sure.sum())), accumulate=True)
    free = undecided[unit]
    return Box(x, matrix, torch.stack([unit[free], edges[1, free], edges[0, free]]))


def check() -> None:
    """Bounds hold over every set of a box, and are the model's own numbers where nothing is undecided."""
    torch.manual_seed(0)
    for case in range(24):
        task = ("graph", "node")[case % 2]
        readout, dense, scale = ("last", "all")[case // 2 % 2], 1 + case % 3, 0.5 + case % 3
        shape = {"hidden": 6, "aggregation": "sum", "scale": scale, "readout": readout, "dense": dense}
        model = build("gcn", task=task, num_features=3, num_classes=3, **shape)  # type: ignore[arg-type]
        pairs = torch.tensor(list(itertools.combinations(range(6), 2)))[torch.randperm(15)[:8]].t()
        x = torch.randn(6, 3)
        edges, unit = torch.cat([pairs, pairs.flip(0)], 1), torch.arange(8).repeat(2)
        undecided = torch.arange(8) < 1 + case % 5
        there = (torch.rand(8) < 0.6) & ~undecided
        net = Net.of(model, None if task == "graph" else 2)
        rows = torch.randn(4, 3)
        boxes = [Bounds(net, boxed(x, edges, unit, there, undecided), neurons=full) for full in (False, True)]
        upper = torch.stack([boxes[0].interval(rows), boxes[0].linear(rows), boxes[1].linear(rows)])
        every = []
        for chosen in itertools.product([False, True], repeat=int(undecided.sum())):
            state = there.clone()
            state[undecided] = torch.tensor(chosen)
            with torch.no_grad():
                out = model(x, edges[:, state[unit]])
            said = rows @ (out[0] if task == "graph" else out[2])
            every.append(said)
            exact = Bounds(net, boxed(x, edges, unit, state, torch.zeros_like(state)))
            for one in (exact.interval(rows), exact.linear(rows)):
                torch.testing.assert_close(one, said, atol=1e-5, rtol=1e-4)
        assert bool((upper >= torch.stack(every).amax(0) - 1e-4).all()), case


def measure(problem: Problem, y: int, size: int, boxes: int, found: Found, costs: Costs) -> None:
    """Boxes of one instance at the size below its answer, and whether they are refuted."""
    pack, trials = problem.pack, Trials(problem.oracle, problem.criterion, problem.tests, cache=False)
    assert problem.oracle.removals is not None
    unit, count = problem.oracle.removals.unit, trials.width
    net = Net.of(problem.predictor.model, int(pack.targets[0, 0]) if pack.targets.size(1) else None)
    classes = net.head[-1][1].numel()
    for state in (trials.valid[0], torch.zeros(count, dtype=torch.bool)):
        exact = Bounds(net, boxed(pack.x, pack.edge_index, unit, state, torch.zeros_like(state)))
        with torch.no_grad():
            said = problem.predictor._hard_rows(pack, state)  # the model's own rows
        for one in (exact.interval(torch.eye(classes)), exact.linear(torch.eye(classes))):
            torch.testing.assert_close(one, said[0], atol=1e-5, rtol=1e-4)
    draw = torch.Generator().manual_seed(int(pack.x.numel()))
    many = torch.rand((256, count), generator=draw) < size / count
    started = time.process_time()
    trials.test(trials.tests[0], torch.zeros(256, dtype=torch.long), many)
    costs.setdefault("trial", []).append((time.process_time() - started) / 256)
    for u, _ in itertools.product((1, 2, 4, 8), range(boxes)):
        if u > count:
            continue
        order = torch.randperm(count, generator=draw)
        undecided, inside = torch.zeros(2, count, dtype=torch.bool)
        undecided[order[:u]] = True
        inside[order[u : u + max(size - 1 - u // 2, 0)]] = True
        members = inside.repeat(2**u, 1)
        members[:, order[:u]] = torch.tensor(list(itertools.product([False, True], repeat=u)))
        outcome = [trials.test(test, torch.zeros(2**u, dtype=torch.long), members)[0] for test in trials.tests]
        found.setdefault((u, "true"), []).append(float(not outcome[0].any() or not outcome[1].any()))
        for method in ("IBP", "CROWN-IBP", "CROWN"):
            if method == "CROWN" and len(pack.x) * net.convs[0][1].numel() > NEURONS:
                continue
            started = time.process_time()
            hit = False
            for test, states in zip(trials.tests, (inside, ~inside)):
                box = boxed(pack.x, pack.edge_index, unit, states, undecided)
                hit = hit or refuted(Bounds(net, box, neurons=method == "CROWN"), y, classes, test.same, method)
            costs.setdefault(method, []).append(time.process_time() - started)
            found.setdefault((u, method), []).append(float(hit))
            assert not hit or found[u, "true"][-1], "a bound that does not hold"


def row(column: str, instances: int, boxes: int) -> list[str]:
    """The lines of one column."""
    source = from_dataset(column)
    keys = source.keys()
    keys = keys[:: max(1, len(keys) // instances)][:instances]
    found: Found = {}
    costs: Costs = {}
    with Session(source.request(keys, Spec(units=("edges",)))) as session:
        for explanation in session.explain(keys):
            if explanation.status == "found":
                (problem,) = session.problems([explanation.key])
                measure(problem, int(problem.criterion.answers[0]), explanation.size, boxes, found, costs)
    trial = sum(costs["trial"]) / len(costs["trial"])
    lines = []
    for method in ("true", "IBP", "CROWN-IBP", "CROWN"):
        cells = [found.get((u, method)) for u in (1, 2, 4, 8)]
        shares = [f"{100 * sum(cell) / len(cell):.0f}" if cell else "–" for cell in cells]
        cost = f"{sum(costs[method]) / len(costs[method]) / trial:,.0f}" if method in costs else "–"
        name = "can be" if method == "true" else method
        lines.append(f"| {column} | {name} | {' | '.join(shares)} | {cost} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("columns", nargs="*", help=f"some of {', '.join(COLUMNS)}; all if none is named")
    parser.add_argument("--instances", type=int, default=8)
    parser.add_argument("--boxes", type=int, default=3, help="per instance and number of undecided edges")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    check()
    lines = ["| column | boxes refuted, % | u = 1 | 2 | 4 | 8 | cost, in trials of a set |", "|---|---|" + "--:|" * 5]
    print(*lines, sep="\n")
    for column in chosen.columns or COLUMNS:
        try:
            lines += row(column, chosen.instances, chosen.boxes)
        except CF2Error as error:
            print(f"{column} is left out. {error}")
            continue
        print(*lines[-4:], sep="\n", flush=True)
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
