"""Packed trials: what would the model say of many candidate sets of many instances, really removed?

Candidate sets are rows of a boolean matrix [R, U] with U the most units any instance has; `rows[r]` says which
instance of the pack row r belongs to. A trial of one set is one or two model evaluations, and they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cf2.objectives import margin, own, runner_up
from cf2.packing import Pack, chunks
from cf2.predictor import Predictor

CHUNK = 4_000_000  # floats kept by one packed pass of trials
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Outcome:
    """Of every candidate set: does it pass each test, and by which log-odds (positive is good)."""

    sufficient: Tensor  # [R] bool
    necessary: Tensor  # [R] bool
    only: Tensor  # [R] log-odds of ŷ with the set alone
    without: Tensor  # [R] log-odds against ŷ with all but the set

    @property
    def passes(self) -> Tensor:
        return self.sufficient & self.necessary

    @property
    def score(self) -> Tensor:
        return score(self.only, self.without)

    def take(self, index: Tensor) -> Outcome:
        return Outcome(self.sufficient[index], self.necessary[index], self.only[index], self.without[index])


def score(only: Tensor, without: Tensor) -> Tensor:
    """How near a set is to passing: minus the violations in log-odds; room to spare breaks ties."""
    spare = only.clamp(max=5) + without.clamp(max=5)
    return only.clamp(max=0) + without.clamp(max=0) + 1e-3 * spare


def log_margin(P: Tensor, y: Tensor) -> Tensor:
    """log P(ŷ) - log P(ŷ_s): the sign of the margin, without its saturation."""
    return own(P, y).clamp(min=TINY).log() - runner_up(P, y).clamp(min=TINY).log()


class Trials:
    """Runs candidate sets of one pack; counts what each instance cost."""

    def __init__(self, predictor: Predictor, pack: Pack, y: Tensor, confidence: float = 0.0) -> None:
        self.predictor, self.pack, self.y, self.confidence = predictor, pack, y, confidence
        self.width = int(pack.units.max()) if pack.size else 0
        self.valid = torch.arange(self.width, device=y.device)[None] < pack.units[:, None]
        self.open = self.valid if pack.open is None else self.dense(pack.open, False)  # what may be chosen
        self.evaluations = torch.zeros(pack.size, dtype=torch.long, device=y.device)
        nodes, edges = pack.node_ptr.diff(), pack.edge_ptr.diff()
        self.costs = torch.tensor([predictor.cost(int(n), int(e)) for n, e in zip(nodes, edges)])

    def dense(self, values: Tensor, fill: float) -> Tensor:
        """A value a unit [units] -> [B, U]."""
        table = torch.full(self.valid.shape, fill, dtype=values.dtype, device=values.device)
        table[self.valid] = values
        return table

    def flat(self, sets: Tensor) -> Tensor:
        """[B, U] -> a value a unit [units]."""
        return sets[self.valid]

    def run(self, rows: Tensor, sets: Tensor) -> Outcome:
        """Both tests of every candidate set."""
        sufficient, only = self.only(rows, sets)
        necessary, without = self.without(rows, sets)
        return Outcome(sufficient, necessary, only, without)

    def passes(self, rows: Tensor, sets: Tensor, need: Tensor | None = None) -> Tensor:
        """Whether sets pass both tests, or those of (sufficient, necessary) that they `need` to [R, 2].

        The second test is run only where the first is passed.
        """
        good = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        for column, test in ((1, self.without), (0, self.only)):
            run = (good if need is None else good & need[:, column]).nonzero().flatten()
            good[run], _ = test(rows[run], sets[run])
        return good

    def only(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The test of sufficiency, and its log-odds."""
        return self._test(rows, sets, True)

    def without(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor]:
        """The test of necessity, and its log-odds."""
        return self._test(rows, sets, False)

    def _test(self, rows: Tensor, sets: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
        passed, odds = [rows.new_zeros(0, dtype=torch.bool)], [self.y.new_zeros(0, dtype=torch.float32)]
        for part in self._parts(rows):
            chosen = sets[part][self.valid[rows[part]]]
            y = self.y[rows[part]]
            P = self.predictor.removed(self.pack.take(rows[part]), chosen if keep else ~chosen)
            same, gap = P.argmax(1) == y, margin(P, y)
            wide = (gap if keep else -gap) > self.confidence if self.confidence else True
            passed.append((same if keep else ~same) & wide)
            odds.append(log_margin(P, y) if keep else -log_margin(P, y))
        self.evaluations.index_add_(0, rows, torch.ones_like(rows))
        return torch.cat(passed), torch.cat(odds)

    def slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-odds of both tests [R], and by how much adding each unit would raise them, to first order [R, U]."""
        parts = [self._slopes(rows[part], sets[part]) for part in self._parts(rows, 4)]
        self.evaluations.index_add_(0, rows, torch.full_like(rows, 6))
        only, without, up, down = (torch.cat(column) for column in zip(*parts))
        return only, without, up, down

    def _slopes(self, rows: Tensor, sets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        valid, count = self.valid[rows], len(rows)
        chosen = sets[valid].float()
        mask = torch.cat([chosen, 1 - chosen]).requires_grad_()
        y = self.y[rows]
        with self.predictor.masked(self.pack.take(torch.cat([rows, rows])), messages=True) as probabilities:
            P = probabilities(mask)
            only, without = log_margin(P[:count], y), -log_margin(P[count:], y)
            (gradient,) = torch.autograd.grad((only + without).sum(), mask, allow_unused=True)
        gradient = torch.zeros_like(mask) if gradient is None else torch.nan_to_num(gradient)
        up, down = (torch.zeros(valid.shape, device=rows.device) for _ in range(2))
        up[valid], down[valid] = gradient[: len(chosen)], -gradient[len(chosen) :]
        return only.detach(), without.detach(), up, down

    def _parts(self, rows: Tensor, factor: int = 1) -> Iterator[slice]:
        return chunks((self.costs[rows.cpu()] * factor).tolist(), CHUNK)


def best_of(rows: Tensor, scores: Tensor, instances: int) -> Tensor:
    """The position of the best-scoring candidate of every instance (the first of equals); -1 where none."""
    top = torch.full((instances,), float("-inf"), device=scores.device).scatter_reduce(0, rows, scores, "amax")
    winner = (scores == top[rows]).nonzero().flatten()
    place = torch.full((instances,), len(scores), device=rows.device)
    place = place.scatter_reduce(0, rows[winner], winner, "amin")
    return torch.where(place < len(scores), place, -1)
