"""Size against cost of the search, beside simpler ways; fills the table in benchmarks/NOTES.md.

    python benchmarks/search.py [--most 40] [--write]

Every row is about the same instances: the paper's, of the shipped models, at most `--most` a data set. "Size" is
the mean over the instances for which every row found a passing set; "passed" is the share of all instances.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.methods.cf2 import Relaxed, Verified, relax
from cf2.methods.contract import Problem
from cf2.options import Spec
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset
from cf2.sets.moves import prefixes, prune, prune_single
from cf2.sets.search import Effort, Search, search
from cf2.sets.trials import Trials, best_of

PAGE = Path(__file__).parent / "NOTES.md"
BEGIN, END = "<!-- size-against-cost: begin -->", "<!-- size-against-cost: end -->"
Row = tuple[Tensor, Tensor, Tensor]  # size, passed, evaluations, each [B]


def outcome(trials: Trials, sets: Tensor, extra: Tensor | int = 0) -> Row:
    cost = trials.evaluations.clone() + extra
    rows = torch.arange(len(sets))
    return sets.sum(1), trials.run(rows, sets).passes, cost


def greedy(trials: Trials) -> Tensor:
    """Add the unit that helps both tests most, tried one by one, until both pass; then prune."""
    sets, passed = torch.zeros_like(trials.valid), torch.zeros(len(trials.counts), dtype=torch.bool)
    for _ in range(40):
        live = (~passed & (sets.sum(1) < trials.counts)).nonzero().flatten()
        if not len(live):
            break
        owner, unit = (trials.valid[live] & ~sets[live]).nonzero(as_tuple=True)
        candidates = sets[live[owner]].clone()
        candidates[torch.arange(len(unit)), unit] = True
        found = trials.run(live[owner], candidates)
        winner = best_of(owner, found.score, len(live))
        sets[live], passed[live] = candidates[winner], found.passes[winner]
    good = passed.nonzero().flatten()
    sets[good] = prune_single(trials, good, sets[good], trials.valid[good].float())
    return sets


def random_prunings(trials: Trials, times: int = 15) -> Tensor:
    """The best of prunings of the whole graph in random orders."""
    best = trials.valid.clone()
    rows = torch.arange(len(trials.counts))
    fits = rows[trials.passes(rows, best)]
    for number in range(times):
        order = torch.rand(best.shape, generator=torch.Generator().manual_seed(number))
        other = prune(trials, fits, trials.valid[fits].clone(), order[fits], torch.ones(len(fits), dtype=torch.bool))
        smaller = other.sum(1) < best[fits].sum(1)
        best[fits[smaller]] = other[smaller]
    return best


def ways(problem: Problem) -> dict[str, Row]:
    """Every way to look for a set, on the same instances."""

    def trials() -> Trials:
        return problem.trials()

    soft = relax(problem, Relaxed(patience=None))
    found = {"relax 500, threshold": outcome(t := trials(), t.dense(soft.mask > 0.5, False), 6 * soft.epochs)}
    guide = relax(problem, Verified())
    t = trials()
    ranking = t.dense(guide.mask, float("-inf"))
    sets, first, _ = prefixes(t, ranking)
    sets = prune(t, torch.arange(problem.num_instances), sets, ranking, first.passes)
    found["prefix, prune"] = outcome(t, sets, 6 * guide.epochs)
    found["forward greedy"] = outcome(t := trials(), greedy(t))
    found["best of 15 random prunings"] = outcome(t := trials(), random_prunings(t))
    for effort in get_args(Effort):
        choice = search(problem.predictor, problem.pack, problem.criterion, problem.tests, guide.mask, Search(effort))
        size, passed, _ = outcome(t := trials(), t.dense(choice.selected, False))
        found[f"cf2, {effort}"] = (size, passed, choice.evaluations + 6 * guide.epochs)
    return found


def measure(name: str, most: int) -> dict[str, Row]:
    """The rows of a data set, by way."""
    source = from_dataset(name)
    keys = source.keys()[:most]
    with Session(source.request(keys, Spec())) as session:
        parts = [ways(problem) for problem in session.problems(keys)]
    return {label: tuple(map(torch.cat, zip(*(part[label] for part in parts)))) for label in parts[0]}  # type: ignore[misc]


def against_optimum(name: str, units: int | None) -> str:
    """How far `standard` is from the proved optimum, on all instances of up to so many units."""
    source = from_dataset(name)
    keys = source.keys()
    with Session(source.request(keys, Spec())) as session:
        found = [e for e in session.explain(keys) if e.num_units and (units is None or e.num_units <= units)]
    small = [e.key for e in found]
    others = []
    for settings in ({"proof": 0}, {"proof": 10**6, "effort": "thorough"}):
        with Session(source.request(small, Spec(settings=settings))) as session:
            others.append(session.explain(small))
    triples = [(s.size, e.size, p.size) for s, e, p in zip(others[0], found, others[1]) if p.optimal]
    missed = sum(p.status == "found" and e.status != "found" for e, p in zip(found, others[1]))
    if not triples:
        return f"| {name} | 0 | – | – | – | – | {missed} |"
    searched, ours, best = (sum(column) / len(triples) for column in zip(*triples))
    above = f"{100 * (ours / best - 1):.2f} %"
    return f"| {name} | {len(triples)} | {searched:.3f} | {ours:.3f} | {best:.3f} | {above} | {missed} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=40, help="instances a data set")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    chosen = parser.parse_args()
    lines = ["| data set | way | size | passed | model evaluations |", "|---|---|--:|--:|--:|"]
    names = ["tree-cycles", "ba-shapes", "mutag0", "nci1", "citeseer"]
    for name in names:
        try:
            rows = measure(name, chosen.most)
        except CF2Error as error:
            print(f"{name} is left out. {error}")
            continue
        common = torch.stack([row[1] for label, row in rows.items() if not label.startswith("relax")]).all(0)
        for label, (sizes, passed, cost) in rows.items():
            size = sizes[common & passed].float().mean() if label.startswith("relax") else sizes[common].float().mean()
            share, runs = 100 * passed.float().mean(), cost.float().mean()
            shown = "–" if size.isnan() else f"{size:.2f}"
            lines.append(f"| {name} | {label} | {shown} | {share:.0f} % | {runs:,.0f} |")
            print(lines[-1], flush=True)
    columns = ("data set", "proved", "without the proof step", "cf2, standard", "optimum", "above it", "missed")
    lines += ["", f"| {' | '.join(columns)} |", "|---" + "|--:" * 6 + "|"]
    for name in names:
        try:
            lines.append(against_optimum(name, None if name == "tree-cycles" else 18))
        except CF2Error:
            continue
        print(lines[-1], flush=True)
    if chosen.write:
        text = PAGE.read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
