"""Branch and bound over shapes, for models that sum up or average their nodes: what cannot pass alone, refuted whole.

Such a model is a head on the sum of the states of all nodes, and parts that share no node add to that sum what each of
them adds alone. So every class of connected parts is run once, and a shape is a sum of vectors. A shape that is to grow
by so many edges more stays in a set around its own sum; sound bounds of the head over that set, by intervals and one
backward pass of linear bounds (CROWN), refute most shapes with all that could be added to them. What is left is run.

The head is linear layers with ReLU between them, in double precision; what is within a tolerance is never refuted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_mean_pool

from cf2.core.adapter import TensorAdapter
from cf2.verify.criterion import PredictedClass
from cf2.verify.parts import STEPS, Census, Level
from cf2.verify.trials import Trials

CHUNK = 1 << 11  # shapes that are bounded at once
CHEAP = 8  # so many bounds of a head for one run of the model
CLOSE = 1e-3  # relative: bounds nearer to 0 refute nothing, as the model itself computes in single precision
CLASSES = ("logits", "log_probabilities", "probabilities")  # the largest is the answer
CHECKS = 8  # sets on which it is seen that parts add up

Branch = tuple[Tensor, Tensor, Tensor, Tensor]  # of shapes: z [R, d], classes [R, parts], edges left [R], looks [R, l]


class Head:
    """Linear layers with ReLU between them, and bounds of the lead of the answer: `PredictedClass` wants it above 0."""

    def __init__(self, head: nn.Sequential, answer: int) -> None:
        linear = [part for part in head if isinstance(part, nn.Linear)]
        self.first = _weights(linear[0])
        self.further = [_weights(part) for part in linear[1:]]
        classes = linear[-1].out_features
        others = [place for place in range(classes) if place != answer]
        self.lead = torch.zeros(len(others), classes, dtype=torch.double, device=self.first[0].device)
        self.lead[torch.arange(len(others)), others] = -1.0
        self.lead[:, answer] = 1.0

    def exact(self, z: Tensor) -> Tensor:
        """The least lead [R], from what the first layer gives [R, d]."""
        for weight, bias in self.further:
            z = z.relu() @ weight + bias
        return (z @ self.lead.t()).amin(1)

    def linear(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Rows on z [R, K, d] and constants [R, K]: upper bounds of all leads, for z in an interval [R, d] each."""
        before = [(low, high)]
        for weight, bias in self.further[:-1]:
            low, high = low.relu(), high.relu()
            up, down = weight.clamp(min=0), weight.clamp(max=0)
            low, high = low @ up + high @ down + bias, high @ up + low @ down + bias
            before.append((low, high))
        rows = self.lead.expand(len(low), -1, -1)
        constant = torch.zeros(rows.shape[:2], dtype=rows.dtype, device=rows.device)
        for (weight, bias), (low, high) in zip(reversed(self.further), reversed(before)):
            constant = constant + rows @ bias
            rows = rows @ weight.t()
            rows, shift = _through(rows, low[:, None], high[:, None])
            constant = constant + shift
        return rows, constant


def _weights(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    weight = layer.weight.detach().t().double()
    return weight, torch.zeros_like(weight[0]) if layer.bias is None else layer.bias.detach().double()


def _through(rows: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Upper linear bounds of rows [R, K, d] times ReLU(z) for z in an interval: rows on z, and constants [R, K]."""
    wide = (high - low).clamp(min=1e-300)
    open_ = (low < 0) & (high > 0)
    upper = torch.where(open_, high / wide, (low >= 0).double())
    lower = torch.where(open_, (high > -low).double(), (low >= 0).double())
    shift = torch.where(open_, -low * high / wide, 0.0)
    return rows * torch.where(rows > 0, upper, lower), (rows.clamp(min=0) * shift).sum(2)


def head_of(trials: Trials) -> nn.Sequential | None:
    """The head of a model that says of itself, by `splits_at_pool`, that it is `head(pool(embed(x, edge_index)))`."""
    model: Any = trials.predictor.model
    findings = trials.predictor.findings
    if not getattr(model, "splits_at_pool", False) or not isinstance(trials.predictor.adapter, TensorAdapter):
        return None
    if trials.predictor.alone or findings is None or findings.output not in CLASSES or findings.columns < 2:
        return None
    if not all(test.same for test in trials.tests if test.intervention.keeps):
        return None
    if not isinstance(trials.criterion, PredictedClass) or trials.pack.extras or trials.pack.sparse is not None:
        return None
    pool, head = getattr(model, "pool", None), getattr(model, "head", None)
    if pool not in (global_add_pool, global_mean_pool) or not isinstance(head, nn.Sequential):
        return None
    kinds = [nn.Linear if place % 2 == 0 else nn.ReLU for place in range(len(head))]
    plain = len(kinds) % 2 == 1 and all(type(part) is kind for part, kind in zip(head, kinds))
    return head if plain else None


class Bounded:
    """The shapes of one instance that could pass alone, by size; all others are refuted."""

    def __init__(self, trials: Trials, row: int, census: Census, head: nn.Sequential) -> None:
        self.trials, self.row, self.census = trials, row, census
        self.head = Head(head, int(trials.criterion.answers[row]))
        self.nodes = int(trials.pack.node_ptr[row + 1] - trials.pack.node_ptr[row])
        model: Any = trials.predictor.model
        self.share = 1 / max(self.nodes, 1) if model.pool is global_mean_pool else 1.0
        self.nothing = self._sums(np.zeros((1, len(census.near)), dtype=bool))
        weight, bias = self.head.first
        self.start = self.nothing * self.share @ weight + bias
        self.gain = self.start[:0]  # by class, what a part adds to the first layer of the head
        self.ends = [0]  # how many classes have at most so many edges
        self.low, self.high = torch.zeros_like(self.start), torch.zeros_like(self.start)  # the same per edge, at most
        self.size = torch.zeros(0, dtype=torch.long, device=self.start.device)
        self.cost = 0

    @classmethod
    def of(cls, trials: Trials, row: int, census: Census) -> Bounded | None:
        """Those of an instance, where the model is known to split at its pooling, and is seen to."""
        head = head_of(trials)
        if head is None:
            return None
        bounded = cls(trials, row, census, head)
        return bounded if bounded.adds_up() else None

    def adds_up(self) -> bool:
        """Whether parts add up, and the head on their sum says what the model says, on a few sets."""
        count = len(self.census.near)
        draw = np.random.default_rng(0)
        sets = draw.random((CHECKS, count)) < np.linspace(0.1, 0.9, CHECKS)[:, None]
        whole = self._sums(sets)
        for place, chosen in enumerate(sets):
            parts = self.census.components(chosen)
            sums = self.nothing[0] + (self._sums(parts) - self.nothing).sum(0)
            if not torch.allclose(sums, whole[place], atol=1e-4, rtol=1e-4):
                return False
        weight, bias = self.head.first
        said = whole * self.share @ weight + bias
        for further, shift in self.head.further:
            said = said.relu() @ further + shift
        packed = self._packed(sets)
        rows = self.trials.predictor.hard(packed, self.trials.valid.new_zeros(0))
        return torch.allclose(self.trials.predictor.probabilities(said.to(rows.dtype)), rows, atol=1e-4)

    def _packed(self, sets: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
        assert self.trials.carried_out is not None
        table = torch.zeros((len(sets), self.trials.width), dtype=torch.bool)
        table[:, : sets.shape[1]] = torch.from_numpy(sets)
        rows = torch.full((len(sets),), self.row)
        device = self.trials.valid.device
        return self.trials.carried_out.packed(rows.to(device), table.to(device))

    def _sums(self, sets: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        """The sums of the states of all nodes [R, width], with only these sets [R, U]."""
        model: Any = self.trials.predictor.model
        found = []
        for low in range(0, len(sets), 1024):
            packed = self._packed(sets[low : low + 1024])
            with torch.no_grad():
                states = model.embed(packed.x, packed.edge_index).double()
            found.append(states.view(-1, self.nodes, states.size(1)).sum(1))
        self.trials.evaluations[self.row] += len(sets)
        return torch.cat(found) if found else self.nothing[:0]

    def _learn(self, size: int, most: int) -> bool:
        """Run one part of every class up to a size; whether these are no more than `most`."""
        while len(self.ends) <= size:
            if self.cost > most or not self.census.grown(len(self.ends), most):
                return False
            parts = self.census.parts[len(self.ends) - 1]
            sums = self._sums(parts.sets[parts.starts])
            self.cost += len(sums)
            gain = (sums - self.nothing) * self.share @ self.head.first[0]
            self.gain = torch.cat([self.gain, gain])
            self.size = torch.cat([self.size, torch.full((len(gain),), len(self.ends), device=gain.device)])
            rate = torch.cat([gain / len(self.ends), torch.zeros_like(self.start)])
            self.low = torch.cat([self.low, torch.minimum(self.low[-1:], rate.amin(0))])
            self.high = torch.cat([self.high, torch.maximum(self.high[-1:], rate.amax(0))])
            self.ends.append(len(self.gain))
        return True

    def level(self, size: int, most: int) -> Level | None:
        """A set of every shape of so many edges that is not refuted; None where that takes more than `most` runs."""
        self.cost = 0
        if not self._learn(size, most):
            return None
        takes, stock = (torch.from_numpy(t).to(self.start.device) for t in (self.census.takes, self.census.stock))
        ends = torch.tensor(self.ends, device=self.start.device)
        whole = self.start.new_full((1,), size, dtype=torch.long)
        stack: list[Branch] = [(self.start, whole.new_zeros((1, 0)), whole, takes.new_zeros((1, len(stock))))]
        found: list[list[int]] = [[]] if not size and bool(self._close(self.start)) else []
        left = CHEAP * (most - self.cost)
        while stack and size:
            z, kinds, rest, looks = stack.pop()
            least = kinds[:, -1] + 1 if kinds.size(1) else ends[-1:]
            children = torch.minimum(least, ends[rest])
            some = max(1, int((children.cumsum(0) <= CHUNK).sum()))
            if some < len(z):
                stack.append((z[some:], kinds[some:], rest[some:], looks[some:]))
            row = torch.arange(some, device=z.device).repeat_interleave(children[:some])
            kind = torch.arange(len(row), device=z.device) - (children[:some].cumsum(0) - children[:some])[row]
            fits = (looks[row] + takes[kind] <= stock).all(1).nonzero().flatten()
            row, kind = row[fits], kind[fits]
            left -= len(row)
            if left < 0:
                return None
            z, kinds = z[row] + self.gain[kind], torch.cat([kinds[row], kind[:, None]], 1)
            rest, looks = rest[row] - self.size[kind], looks[row] + takes[kind]
            last = (rest == 0).nonzero().flatten()
            found += kinds[last[self._close(z[last])]].tolist()
            more = (rest > 0).nonzero().flatten()
            more = more[~self._refuted(z[more], self.size[kind[more]], rest[more])]
            if len(more):
                stack.append((z[more], kinds[more], rest[more], looks[more]))
        self.cost += (CHEAP * (most - self.cost) - left) // CHEAP + len(found)
        return self._placed(found, size)

    def _close(self, z: Tensor) -> Tensor:
        """Which shapes may pass alone, all of whose edges are known."""
        return self.head.exact(z) > -CLOSE * (1 + z.abs().amax(1)) if len(z) else z.new_zeros(0, dtype=torch.bool)

    def _refuted(self, z: Tensor, largest: Tensor, rest: Tensor) -> Tensor:
        """Of which shapes [R] nothing that adds `rest` edges passes alone, in parts of at most the `largest` size."""
        largest = torch.minimum(largest, rest)
        low, high = z + rest[:, None] * self.low[largest], z + rest[:, None] * self.high[largest]
        rows, constant = self.head.linear(low, high)
        constant = (
            constant + (rows * z[:, None]).sum(2) + CLOSE * (1 + torch.maximum(low.abs(), high.abs()).amax(1))[:, None]
        )
        by_box = torch.maximum(rows * self.low[largest][:, None], rows * self.high[largest][:, None]).sum(2)
        refuted = (constant + rest[:, None] * by_box < 0).any(1)
        for size in torch.unique(largest[~refuted]).tolist():
            some = (~refuted & (largest == size)).nonzero().flatten()
            rate = (self.gain / self.size[:, None])[: self.ends[size]]
            for part in some.split(max(1, (CHUNK << 9) // len(rate))):
                most = (rows[part] @ rate.t()).amax(2).clamp(min=0)
                refuted[part] = (constant[part] + rest[part][:, None] * most < 0).any(1)
        return refuted

    def _placed(self, found: list[list[int]], size: int) -> Level | None:
        """Those shapes for which the graph has room, each with a set."""
        sets, kinds, steps = [np.zeros((0, len(self.census.near)), dtype=bool)], [], STEPS
        for one in found:
            placed, used = self.census.place(one, steps)
            steps -= used
            if steps <= 0:
                return None
            if placed is not None:
                sets.append(placed[None])
                kinds.append(one + [-1] * (size - len(one)))
        table = np.array(kinds, dtype=np.int64).reshape(len(kinds), size)
        return Level(np.concatenate(sets), table, np.zeros(len(kinds), dtype=np.uint64))
