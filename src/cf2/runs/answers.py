"""From a packed problem to explanations: rank, search, judge, and look for other answers where they are asked for."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cf2.methods.candidates import choose_once
from cf2.methods.contract import Problem, Ranking, search_from
from cf2.results.explanation import Explanation
from cf2.runs.verified import Asked, explanations
from cf2.verify.alternatives import list_answers, without_supersets
from cf2.verify.neighbours import single_removals
from cf2.verify.question import QUESTIONS
from cf2.verify.rules import SetRules
from cf2.verify.search import Choice, Search, proof_budget
from cf2.verify.trials import Trials
from cf2.verify.verdict import Verdict, judge

LAST = 1e4  # by how much a unit that was used falls in the ranking of a further search


@dataclass(frozen=True, eq=False)
class Answers:
    """How one request is answered, whatever its problems are."""

    request: Asked
    method: Any  # Method
    settings: Any
    search: Search | None  # of a method that only ranks
    refuses: Any  # whether an instance with these units is too large

    @property
    def searches(self) -> bool:
        return self.method.searches or self.search is not None

    def explain(self, problem: Problem, started: float) -> list[Explanation]:
        """Explanations of a problem's instances in their order, the best answer of each first."""
        asked = problem.criterion.holds(problem.outputs)
        if self.searches and bool(asked.any()) and not bool(asked.all()):
            return self._apart(problem, asked, started)
        refused = self.refuses(problem.tables[0])
        skipped = refused or not problem.pack.units.count or (self.searches and not bool(asked.any()))
        ranking = _nothing(problem) if skipped else self.method.rank(problem, self.settings)
        sizes = self.request.spec.sizes
        if sizes is not None and not skipped and not self.searches:
            most = choose_once(problem, ranking.scores, k=problem.sizes(sizes), threshold=None)
            ranking = replace(ranking, choice=replace(ranking.choice, selected=most))
        if self.search is not None and not skipped:
            ranking = search_from(problem, ranking, self.search)
        ranking, verdict = _judged(problem, ranking)
        looked = self.searches and not skipped
        several = looked and self.request.spec.alternatives > 1
        others = self._others(problem, ranking, verdict) if several else {}
        empty = _default(problem, verdict) if looked else None
        seconds = (time.perf_counter() - started) / max(problem.num_instances, 1)
        best = explanations(self.request, self.settings, problem, ranking, verdict, refused, seconds, empty)
        if looked and self.request.spec.robust:
            best = iter(_with_robustness(problem, ranking, list(best)))
        return [e for row, first in enumerate(best) for e in _ordered(first, others.get(row))]

    def _apart(self, problem: Problem, asked: Tensor, started: float) -> list[Explanation]:
        """Search only where the model gives the answer that is asked about."""
        parts = [rows.nonzero().flatten() for rows in (asked, ~asked)]
        made = [_by_key(self.explain(problem.take(rows), started), len(rows)) for rows in parts]
        listed = [answers for part in made for answers in part]
        return [e for place in torch.cat(parts).argsort().tolist() for e in listed[place]]

    def _others(
        self, problem: Problem, ranking: Ranking, verdict: Verdict
    ) -> dict[int, tuple[list[Explanation], bool]]:
        """Further answers of the instances that have one, by row, and whether these are all there are."""
        most, settings = self.request.spec.alternatives, self._search_settings()
        assert isinstance(problem.rules, SetRules)
        trials = Trials(problem.predictor, problem.pack, problem.criterion, problem.tests, rules=problem.rules)
        alive = verdict.passes(problem.tests)
        found: dict[int, tuple[list[Explanation], bool]] = {}
        for row in alive.nonzero().flatten().tolist():
            listed = list_answers(trials, row, most, proof_budget(settings))
            if listed is not None:
                alive[row] = False
                rows = torch.full((len(listed.sets),), row, device=alive.device)
                found[row] = (self._made(problem.take(rows), listed.sets), listed.complete)
        known = trials.dense(ranking.choice.selected, False)[:, None]
        for _ in range(most - 1):
            rows = alive.nonzero().flatten()
            if not len(rows):
                break
            sub = problem.take(rows)
            assert isinstance(sub.rules, SetRules)
            width = int(sub.pack.units.counts.max())
            sub = replace(sub, rules=sub.rules.besides(known[rows][:, :, :width]))
            used = known[rows].any(1)[trials.valid[rows]]
            scores = ranking.scores[alive[problem.pack.units.owner]]
            start = Ranking(scores - LAST * used, Choice(used & False, torch.zeros(len(rows), device=rows.device)))
            again, judged = _judged(sub, search_from(sub, start, settings))
            good = judged.passes(sub.tests)
            made = list(explanations(self.request, self.settings, sub, again, judged, False, 0.0))
            for place in good.nonzero().flatten().tolist():
                found.setdefault(int(rows[place]), ([], False))[0].append(made[place])
            alive[rows[~good]] = False
            sets = torch.zeros_like(known[:, 0])
            sets[rows[good]] = Trials.spread(again.choice.selected, sub.pack.units.counts, trials.width)[good]
            known = torch.cat([known, sets[:, None]], 1)
        return found

    def _made(self, sub: Problem, sets: Tensor) -> list[Explanation]:
        """Explanations of sets that are known to be minimal answers of one instance, repeated once for each."""
        if not len(sets):
            return []
        count, size = int(sub.pack.units.counts[0]), sets.sum(1)
        smallest: list[bool | None] = [bool(one == size.min()) or None for one in size]
        mine = torch.zeros(len(sets) * count, device=sets.device)
        choice = Choice(
            sets[:, :count].reshape(-1),
            torch.zeros(len(sets), device=sets.device),
            ["found"] * len(sets),
            [True] * len(sets),
            smallest,
        )
        made, judged = _judged(sub, Ranking(mine, choice))
        return list(explanations(self.request, self.settings, sub, made, judged, False, 0.0))

    def _search_settings(self) -> Search:
        if self.search is not None:
            return self.search
        names = ("effort", "confidence", "proof")
        return Search(**{name: getattr(self.settings, name) for name in names if hasattr(self.settings, name)})


def _judged(problem: Problem, ranking: Ranking) -> tuple[Ranking, Verdict]:
    """The ranking with what may be chosen of its choice, and the final check of that."""
    selected = problem.pack.units.admissible(ranking.choice.selected)
    verdict = judge(problem.predictor, problem.pack, problem.criterion, selected, problem.outputs)
    return replace(ranking, choice=replace(ranking.choice, selected=selected)), verdict


def _ordered(first: Explanation, others: tuple[list[Explanation], bool] | None) -> list[Explanation]:
    """All answers of one instance, the smallest first, none with another one inside."""
    if others is None:
        return [first]
    listed, complete = others
    made = [first, *(replace(e, scores=first.scores, seconds=0.0) for e in listed)]
    kept = without_supersets([torch.from_numpy(e.selected) for e in made])
    return [replace(made[place], rank=rank, complete=complete) for rank, place in enumerate(kept)]


def _by_key(made: list[Explanation], count: int) -> list[list[Explanation]]:
    """Explanations as lists of answers, one list per instance."""
    groups: list[list[Explanation]] = []
    for e in made:
        if e.rank == 0:
            groups.append([])
        groups[-1].append(e)
    assert len(groups) == count
    return groups


def _default(problem: Problem, verdict: Verdict) -> Tensor | None:
    """Whether the model gives the same answer with everything removed [B], if some set was looked for in vain."""
    failed = (~verdict.passes(problem.tests)).nonzero().flatten()
    if not len(failed) or problem.tests == QUESTIONS["factual"]:
        return None
    pack = problem.pack.take(failed)
    everything = pack.units.kept(torch.zeros_like(pack.units.owner, dtype=torch.bool))
    said = problem.predictor.hard(pack, everything)
    empty = torch.zeros(problem.num_instances, dtype=torch.bool, device=failed.device)
    empty[failed] = problem.criterion.take(failed).holds(said)
    return empty


def _with_robustness(problem: Problem, ranking: Ranking, made: list[Explanation]) -> list[Explanation]:
    """Explanations that say on how many disturbed graphs they pass, and of how many with one other unit gone."""
    assert isinstance(problem.rules, SetRules)
    near = problem.rules.neighbours
    assert near is not None
    counts = problem.pack.units.counts
    sets = Trials.spread(ranking.choice.selected, counts, int(counts.max()))
    passed, tried, _ = near.passed(torch.arange(len(made), device=sets.device), sets)
    criterion, tests = problem.criterion, problem.tests
    kept, removals = single_removals(problem.predictor, problem.pack, criterion, tests, ranking.choice.selected)
    cost = (near.evaluations + 2 * removals).tolist()
    numbers = zip(passed.tolist(), tried.tolist(), kept.tolist(), removals.tolist())
    return [
        replace(e, robust=(p, t), robust_removals=(k, r), evaluations=e.evaluations + extra)
        if e.status not in ("empty", "refused", "not predicted")
        else e
        for e, (p, t, k, r), extra in zip(made, numbers, cost)
    ]


def _nothing(problem: Problem) -> Ranking:
    """The ranking of instances that are not explained."""
    units = problem.pack.units.owner
    return Ranking(units * 0.0, Choice(torch.zeros_like(units, dtype=torch.bool), torch.zeros(problem.num_instances)))
