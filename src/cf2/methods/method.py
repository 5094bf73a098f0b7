"""What every method gets, what it gives back, and how that becomes explanations with verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cf2.errors import CF2Error, require, require_number, unknown_name
from cf2.explanation import Explanation, settings_dict
from cf2.instances import Instance
from cf2.packing import Pack
from cf2.predictor import Predictor
from cf2.search import Search, search

NOTHING = (
    "The computation graph has no edge or feature that can be removed: the prediction rests on the rest of the input."
)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Instances that are explained together: packed, with the model's own prediction of each."""

    predictor: Predictor
    instances: Sequence[Instance]
    pack: Pack
    P: Tensor  # [B, classes], probabilities on the graphs as they are
    y: Tensor  # [B], the classes to explain
    seed: int | None = None
    trained: Any = None  # what `fit` made, for methods that are trained first


@dataclass(frozen=True, eq=False)
class Ranking:
    """What a method says of the units of a chunk: a score each, a choice, and what it cost [B]."""

    scores: Tensor  # [units], higher is more important
    selected: Tensor  # [units], bool
    evaluations: Tensor  # [B], forward passes of one instance; a backward counts as two
    status: Sequence[str] | None = None  # [B]; None: `unverified`
    minimal: Sequence[bool | None] | None = None  # [B]
    optimal: Sequence[bool | None] | None = None  # [B]
    notes: Sequence[str] | None = None  # [B]


@dataclass(frozen=True)
class Method:
    """A method by name: one sentence, its settings, a function from a chunk to a ranking."""

    name: str
    summary: str
    settings: type
    rank: Callable[[Chunk, Any], Ranking]
    fit: Callable[..., Any] | None = None  # (chunks, settings, seed) -> trained, for learned methods

    def make_settings(self, given: Mapping[str, Any]) -> Any:
        """The frozen settings, or an error that names the unknown or missing one."""
        known = {f.name: f for f in fields(self.settings)}
        for name in given:
            if name not in known:
                raise unknown_name(f"a setting of method {self.name!r}", name, known)
        for name, item in known.items():
            if name not in given and item.default is MISSING and item.default_factory is MISSING:
                raise CF2Error(f"Expected the setting `{name}` of method {self.name!r}", got="none")
        return self.settings(**given)


def check_choice(k: int | None, threshold: float | None) -> None:
    """At most one of a fixed size and a threshold; with neither, `choose` takes the threshold 0.5."""
    require(
        k is None or threshold is None,
        "Expected either a size `k` or a `threshold`, and not both",
        got=f"k={k}, threshold={threshold}",
    )
    if k is not None:
        require_number("k", k, 1, integer=True)
    if threshold is not None:
        require_number("threshold", threshold, 0, 1)


def choose(scores: Tensor, pack: Pack, *, k: int | None = None, threshold: float | None = None) -> Tensor:
    """The k best units of every instance (ties: the first), or all above a threshold (0.5 without either)."""
    if pack.open is not None:
        scores = scores.masked_fill(~pack.open, float("-inf"))
    if k is None:
        return scores > (0.5 if threshold is None else threshold)
    best = rank_within(scores, pack) < k
    return best if pack.open is None else best & pack.open


def rank_within(scores: Tensor, pack: Pack) -> Tensor:
    """The place of every unit in the ranking of its own instance, 0 for the best."""
    by_score = scores.argsort(descending=True, stable=True)
    order = by_score[pack.unit_owner[by_score].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) - pack.unit_ptr[:-1][pack.unit_owner]
    return rank


def verify(chunk: Chunk, ranking: Ranking, settings: Search) -> Ranking:
    """The smallest set that passes both tests, searched from the method's scores."""
    found = search(chunk.predictor, chunk.pack, chunk.y, ranking.scores, settings)
    evaluations = ranking.evaluations + found.evaluations
    return Ranking(ranking.scores, found.selected, evaluations, found.status, found.minimal, found.optimal)


def conclude(method: Method, settings: Any, chunk: Chunk, ranking: Ranking, started: float) -> list[Explanation]:
    """Run the model on the explanation alone and on all but it, and write down what it said."""
    only = chunk.predictor.removed(chunk.pack, ranking.selected)
    without = chunk.predictor.removed(chunk.pack, ~ranking.selected)
    sufficient = (only.argmax(1) == chunk.y).tolist()
    necessary = (without.argmax(1) != chunk.y).tolist()
    seconds = (time.perf_counter() - started) / max(chunk.pack.size, 1)
    scores = [s.cpu().numpy().astype(np.float32) for s in chunk.pack.split(ranking.scores)]
    selected = [s.cpu().numpy() for s in chunk.pack.split(ranking.selected)]
    tables = [t.cpu().numpy() for t in (chunk.P, only, without)]
    plain = settings_dict(settings)
    explanations = []
    for row, instance in enumerate(chunk.instances):
        edges, entries = units_of(instance, chunk.pack, row)
        empty = not len(scores[row])
        explanations.append(
            Explanation(
                key=instance.key,
                task=chunk.predictor.task,
                prediction=int(chunk.y[row]),
                unit_edges=edges,
                unit_features=entries,
                scores=scores[row],
                selected=selected[row],
                probabilities=tables[0][row],
                only=tables[1][row],
                without=tables[2][row],
                sufficient=sufficient[row],
                necessary=necessary[row],
                minimal=None if ranking.minimal is None else ranking.minimal[row],
                optimal=None if ranking.optimal is None else ranking.optimal[row],
                status="empty" if empty else ranking.status[row] if ranking.status else "unverified",
                note=NOTHING if empty else (ranking.notes[row] if ranking.notes else ""),
                method=method.name,
                settings=plain,
                seed=chunk.seed,
                evaluations=int(ranking.evaluations[row]) + 2,
                seconds=seconds,
                directed=instance.directed,
            )
        )
    return explanations


def units_of(instance: Instance, pack: Pack, row: int) -> tuple[np.ndarray, np.ndarray]:
    """The units of one packed instance in the user's ids: edges [E, 2], feature entries [F, 2]."""
    entries = slice(int(pack.entry_ptr[row]), int(pack.entry_ptr[row + 1]))
    count = int(pack.units[row]) - (entries.stop - entries.start)
    rows = pack.entry_row[entries].cpu() - int(pack.node_ptr[row])
    features = torch.stack([instance.node_ids[rows], pack.entry_column[entries].cpu()], 1)
    return instance.unit_edges[:count].numpy(), features.numpy()
