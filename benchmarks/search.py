"""Size against cost of the search, beside simpler ways; fills the table in docs/verified-search.md.

    python benchmarks/search.py [--most 40] [--write]

Every row is about the same instances: the paper's, of the shipped models, at most `--most` a data set. "Size" is
the mean over the instances for which every row found a passing set; "passed" is the share of all instances.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from cf2.errors import CF2Error
from cf2.methods.cf2 import Relaxed, Verified, relax
from cf2.moves import prefixes, prune, prune_single
from cf2.search import Search, search
from cf2.subjects import from_dataset
from cf2.trials import Trials, best_of
from cf2.work import Session

PAGE = Path(__file__).parent.parent / "docs" / "verified-search.md"
BEGIN, END = "<!-- size-against-cost: begin -->", "<!-- size-against-cost: end -->"
Row = tuple[Tensor, Tensor, Tensor]  # size, passed, evaluations, each [B]


def outcome(trials: Trials, sets: Tensor, extra: Tensor | int = 0) -> Row:
    cost = trials.evaluations.clone() + extra
    rows = torch.arange(len(sets))
    return sets.sum(1), trials.run(rows, sets).passes, cost


def greedy(trials: Trials) -> Tensor:
    """Add the unit that helps both tests most, tried one by one, until both pass; then prune."""
    count = trials.pack.size
    sets, passed = torch.zeros_like(trials.valid), torch.zeros(count, dtype=torch.bool)
    for _ in range(40):
        live = (~passed & (sets.sum(1) < trials.pack.units)).nonzero().flatten()
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
    rows = torch.arange(trials.pack.size)
    fits = rows[trials.passes(rows, best)]
    for number in range(times):
        order = torch.rand(best.shape, generator=torch.Generator().manual_seed(number))
        other = prune(trials, fits, trials.valid[fits].clone(), order[fits], torch.ones(len(fits), dtype=torch.bool))
        smaller = other.sum(1) < best[fits].sum(1)
        best[fits[smaller]] = other[smaller]
    return best


def measure(name: str, most: int) -> list[tuple[str, Row]]:
    subject = from_dataset(name)
    keys = subject.keys()[:most]
    parts: dict[str, list[Row]] = {}
    with Session(subject.work(keys)) as session:
        for chunk in session.chunks(keys):

            def trials() -> Trials:
                return Trials(chunk.predictor, chunk.pack, chunk.y)  # noqa: B023

            def keep(label: str, row: Row) -> None:
                parts.setdefault(label, []).append(row)

            soft = relax(chunk, Relaxed(patience=None))
            keep("relax 500, threshold", outcome(t := trials(), t.dense((soft.mask > 0.5), False), 6 * soft.epochs))
            guide = relax(chunk, Verified())
            t = trials()
            ranking = t.dense(guide.mask, float("-inf"))
            sets, passed = prefixes(t, ranking)
            sets = prune(t, torch.arange(chunk.pack.size), sets, ranking, passed)
            keep("prefix, prune", outcome(t, sets, 6 * guide.epochs))
            keep("forward greedy", outcome(t := trials(), greedy(t)))
            keep("best of 15 random prunings", outcome(t := trials(), random_prunings(t)))
            for effort in ("quick", "standard", "thorough"):
                found = search(chunk.predictor, chunk.pack, chunk.y, guide.mask, Search(effort))
                row = outcome(trials(), trials().dense(found.selected, False), 6 * guide.epochs)
                keep(f"cf2, {effort}", (row[0], row[1], found.evaluations + 6 * guide.epochs))
    return [(label, tuple(torch.cat(c) for c in zip(*rows))) for label, rows in parts.items()]  # type: ignore[misc]


def against_optimum(name: str, units: int | None) -> str:
    """How far `standard` is from the proved optimum, on all instances of up to so many units."""
    subject = from_dataset(name)
    keys = subject.keys()
    work = subject.work(keys)
    with Session(work) as session:
        found = [e for e in session.explain(keys) if e.num_units and (units is None or e.num_units <= units)]
    small = [e.key for e in found]
    others = []
    for settings in ({"proof": 0}, {"proof": 10**6, "effort": "thorough"}):
        with Session(replace(work, settings=settings)) as session:
            others.append(session.explain(small) if small else [])
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
        common = torch.stack([row[1] for label, row in rows if label != "relax 500, threshold"]).all(0)
        for label, (sizes, passed, cost) in rows:
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
