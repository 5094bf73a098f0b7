"""Counterfactuals with edits, beside simpler ways; fills the tables in benchmarks/NOTES.md.

    python benchmarks/counterfactuals.py [--most 200] [--first 20] [--keep FILE] [--only NAME …] [--write]

Every answer is checked by code that shares nothing with the package: the edits are made here, one by one, on the whole
graph as the data set has it, and the model is run on that. With `--keep`, what is measured is kept in a JSON file, and
a second run measures only what is missing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

import cf2
from cf2.graphs.targets import stream
from cf2.methods.contract import Method, Problem, Ranking
from cf2.models.soft_masks import single_thread
from cf2.options import Spec
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.session import Session
from cf2.runs.source import ModelAndData
from cf2.samples.sources import from_dataset
from cf2.sets.search import Choice

PAGE = Path(__file__).parent / "NOTES.md"
ALL = ("remove", "add", "change")
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Predictions of one class of one data set, and what may be done to change them."""

    name: str
    dataset: str
    says: str  # the class that the model gives
    edits: tuple[str, ...]
    most: int
    options: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("Mutag₀, remove + add", "mutag0", "non-mutagen", ("remove", "add"), 200),
    Case("Mutag₀, change", "mutag0", "non-mutagen", ("change",), 200),
    Case("Mutag₀, all three", "mutag0", "non-mutagen", ALL, 200),
    Case("Mutag₀, all three, valid molecules", "mutag0", "non-mutagen", ALL, 200, {"valid": "molecule"}),
    Case("Tree-Cycles, remove + add", "tree-cycles", "tree", ("remove", "add"), 150),
    Case("CiteSeer, remove + add", "citeseer", "DB", ("remove", "add"), 150),
    Case('CiteSeer, `candidates="near"`', "citeseer", "DB", ("remove", "add"), 150, {"candidates": "near"}),
    Case('CiteSeer, `candidates="far"`', "citeseer", "DB", ("remove", "add"), 150, {"candidates": "far"}),
]
COLUMNS = {  # the six columns of the paper: data set, units, and how many instances at most
    "BA-Shapes": ("ba-shapes", "edges", 100),
    "Tree-Cycles": ("tree-cycles", "edges", 100),
    "Mutag₀": ("mutag0", "edges", 100),
    "NCI1": ("nci1", "edges", 100),
    "CiteSeer, edges": ("citeseer", "edges", 100),
    "CiteSeer, features": ("citeseer", "features", 20),
}


# -- a rival that only draws ---------------------------------------------------------------------------------

BLOCK = 32  # sets of each instance that are drawn at once


@dataclass(frozen=True)
class Draws:
    """At most `budget` random sets of `k` edits; one that breaks a rule is not run, and counts."""

    k: int = 1
    budget: int = 100


def draw(problem: Problem, settings: Draws) -> Ranking:
    """Random sets until one passes, each instance from a stream of its own."""
    trials = problem.trials(problem.constraints)
    count, width = trials.valid.shape
    streams = [stream(problem.seed or 0, problem.pack.key(row)) for row in range(count)]
    chosen = torch.zeros(count, width, dtype=torch.bool)
    passed = torch.zeros(count, dtype=torch.bool)
    for start in range(0, settings.budget, BLOCK):
        rows = (~passed).nonzero().flatten().repeat_interleave(min(BLOCK, settings.budget - start))
        if not len(rows):
            break
        noise = torch.stack([torch.rand(width, generator=streams[row]) for row in rows.tolist()])
        noise = noise.masked_fill(~trials.selectable[rows], -1)
        best = noise.topk(min(settings.k, width), dim=1)
        sets = torch.zeros_like(noise, dtype=torch.bool).scatter_(1, best.indices, best.values >= 0)
        for row, one in zip(rows[good := trials.passes(rows, sets)].tolist(), sets[good]):
            chosen[row], passed[row] = one, True
    status = ["found" if good else "not found" for good in passed.tolist()]
    return Ranking(trials.flat(chosen.float()), Choice(trials.flat(chosen), trials.evaluations, status))


cf2.register(
    Method(
        name="draws",
        title="random",
        summary="random sets until one passes",
        settings=Draws,
        rank=draw,
        edits=True,
        draws=True,
        searches=True,
    )
)


# -- the independent check -----------------------------------------------------------------------------------


def remade(graph: Data, edits: Iterable[tuple[Any, ...]]) -> tuple[torch.Tensor, list[list[int]], list[int]]:
    """Features, edges and bonds of a graph after edits of undirected edges and of features."""
    x = graph.x.clone()
    columns = graph.edge_index.t().tolist()
    bonds = graph.bond.tolist() if "bond" in graph else [1] * len(columns)
    common = max(sorted(set(bonds)), key=bonds.count, default=1)
    for sort, place, *values in edits:
        if sort == "change":
            assert abs(float(x[place]) - values[0]) < 1e-6, "the old value is what stands there"
            x[place] = values[1]
        elif sort == "add":
            assert list(place) not in columns, "an added edge is not there yet"
            columns, bonds = [*columns, list(place), list(place[::-1])], [*bonds, common, common]
        else:
            stays = [tuple(pair) not in (place, place[::-1]) for pair in columns]
            assert not all(stays), "a removed edge was there"
            columns = [pair for pair, stay in zip(columns, stays) if stay]
            bonds = [bond for bond, stay in zip(bonds, stays) if stay]
    return x, columns, bonds


def says(source: ModelAndData, x: torch.Tensor, columns: Sequence[Sequence[int]], key: int) -> int:
    """The class that the model gives on a whole graph."""
    edge_index = torch.tensor(columns, dtype=torch.long).reshape(-1, 2).t()
    with torch.no_grad():
        if source.level == "node":
            return int(source.model(x, edge_index)[key].argmax())
        return int(source.model(x, edge_index, batch=torch.zeros(len(x), dtype=torch.long)).argmax())


def flips(source: ModelAndData, e: Explanation, before: int) -> bool:
    """Whether the model says another class than before when the edits of an answer are made."""
    graph = source.graphs[0 if source.level == "node" else int(e.key)]  # type: ignore[arg-type]
    x, columns, _ = remade(graph, e.edits)
    return says(source, x, columns, int(e.key)) != before  # type: ignore[arg-type]


def sanitised(source: ModelAndData, e: Explanation) -> bool:
    """Whether RDKit sanitises the molecule after the edits; nitrogen of valence 4 has a charge, as in nitro groups."""
    from rdkit import Chem, rdBase

    x, columns, bonds = remade(source.graphs[int(e.key)], e.edits)  # type: ignore[arg-type]
    elements = [(source.atoms or ())[int(row.nonzero())] for row in x]
    made, valence = Chem.RWMol(), [0] * len(elements)
    for element in elements:
        made.AddAtom(Chem.Atom(element))
    kinds = [Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE]
    for (one, other), bond in zip(columns, bonds):
        if one < other:
            made.AddBond(one, other, kinds[bond - 1])
            valence[one] += bond
            valence[other] += bond
    for atom, element, total in zip(made.GetAtoms(), elements, valence):
        plus = {"N": 4, "P": 4, "O": 3, "S": 3}.get(element) == total
        atom.SetFormalCharge(1 if plus else -1 if (element, total) == ("B", 4) else 0)
    with rdBase.BlockLogs():
        return Chem.SanitizeMol(made, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE


# -- what is measured ----------------------------------------------------------------------------------------


def explained(source: ModelAndData, keys: Sequence[int], spec: Spec) -> tuple[list[Explanation], float]:
    """Explanations of some keys, and the CPU seconds that they took."""
    started = time.process_time()
    with Session(source.request(keys, spec)) as session:
        found = session.explain(keys)
    return found, time.process_time() - started


def of_sizes(source: ModelAndData, keys: Sequence[int], spec: Spec, sizes: Sequence[int]) -> list[Explanation]:
    """Explanations of a method that is given its size, each of the size of another answer (at least 1)."""
    found: dict[int, Explanation] = {}
    wanted = [max(size, 1) for size in sizes]
    for size in sorted(set(wanted)):
        mine = [key for key, own in zip(keys, wanted) if own == size]
        made, _ = explained(source, mine, replace(spec, settings={**spec.settings, "k": size}))
        found |= dict(zip(mine, made))
    return [found[key] for key in keys]


def row(source: ModelAndData, found: Sequence[Explanation], seconds: float, before: dict[int, int], valid: bool) -> Row:
    """How many answers are counterfactuals by the independent check, and what they cost."""
    flipped = [flips(source, e, before[int(e.key)]) for e in found]  # type: ignore[arg-type]
    true = [good and (not valid or sanitised(source, e)) for e, good in zip(found, flipped)]
    sizes = [e.size for e, good in zip(found, true) if good]
    return {
        "n": len(found),
        "found": sum(true),
        "edits": sum(sizes) / max(len(sizes), 1),
        "evaluations": sum(e.evaluations for e in found) / len(found),
        "seconds": seconds / len(found),
        "contradictions": sum(e.necessary != good for e, good in zip(found, flipped)),
        "status": {status: sum(e.status == status for e in found) for status in sorted({e.status for e in found})},
    }


def measure_case(case: Case, most: int, first: int) -> dict[str, Row]:
    """The rows of a case, by method."""
    source = from_dataset(case.dataset)
    wanted = source.class_names.index(case.says)
    if source.level == "node":
        with torch.no_grad():
            said = source.model.eval()(source.graphs[0].x, source.graphs[0].edge_index).argmax(1).tolist()
    else:
        source.model.eval()
        said = [says(source, g.x, g.edge_index.t().tolist(), 0) for g in source.graphs]
    drawn = torch.randperm(len(said), generator=torch.Generator().manual_seed(0)).tolist()
    keys = [key for key in drawn if said[key] == wanted][: min(most, case.most)]
    before = {key: said[key] for key in keys}
    spec = Spec(question="counterfactual", edits=case.edits, **case.options)  # type: ignore[arg-type]
    valid = case.options.get("valid") == "molecule"
    ours, seconds = explained(source, keys, spec)
    rows = {"cf2": row(source, ours, seconds, before, valid)}
    if valid:
        good = [e for e in ours if e.status == "found"]
        rows["cf2"]["sanitised"] = sum(sanitised(source, e) for e in good)
        rows["cf2"]["sanitised_before"] = sum(sanitised(source, replace(e, selected=e.selected & False)) for e in ours)
    mean = max(round(rows["cf2"]["evaluations"]), 1)
    made, seconds = explained(source, keys, replace(spec, method="greedy", settings={"budget": mean}))
    rows["greedy, as many evaluations"] = row(source, made, seconds, before, valid)
    typical = round(rows["cf2"]["edits"])
    sizes = [e.size if e.status == "found" else typical for e in ours]
    for name, other in (
        ("random, as many sets", replace(spec, method="draws", seed=0, settings={"budget": mean})),
        ("gradient, as many edits", replace(spec, method="gradient")),
    ):
        started = time.process_time()
        made = of_sizes(source, keys, other, sizes)
        rows[name] = row(source, made, time.process_time() - started, before, valid)
    if first:
        some = ours[:first]
        rows[f"cf2, first {first}"] = row(source, some, sum(e.seconds for e in some), before, valid)
        made, seconds = explained(source, keys[:first], replace(spec, method="greedy"))
        rows[f"greedy without a limit, first {first}"] = row(source, made, seconds, before, valid)
    return rows


def measure_column(name: str, most: int) -> dict[str, Row]:
    """The three questions on the paper's instances, removal only, and the baselines of each kind."""
    dataset, units, several = COLUMNS[name]
    source = from_dataset(dataset)
    asked = source.keys()
    keys = [int(key) for key in asked[: min(most, several)]]  # type: ignore[arg-type]
    truth = source.context(keys).get("truth") if units == "edges" else None
    spec = Spec(units=(units,))
    made = {question: explained(source, keys, replace(spec, question=question))[0] for question in QUESTIONS}
    rows = {question: column_row(found, truth) for question, found in made.items()}
    for question in ("factual", "counterfactual"):
        pairs = [(e, why) for e, why in zip(made[question], made["why"]) if why.status == "found"]
        rows[question]["larger than why"] = sum(e.status != "found" or e.size > why.size for e, why in pairs)
        rows[question]["compared"] = len(pairs)
    sizes = [e.size for e in made["factual"]]
    rows["gnnexplainer, size of factual"] = column_row(
        of_sizes(source, keys, replace(spec, method="gnnexplainer"), sizes), truth
    )
    rows["cf-gnnexplainer"] = column_row(explained(source, keys, replace(spec, method="cf-gnnexplainer"))[0], truth)
    return rows


QUESTIONS: tuple[Any, ...] = ("why", "factual", "counterfactual")


def column_row(found: Sequence[Explanation], truth: Any) -> Row:
    scores = metrics.evaluate(Explanations(tuple(found), {}), truth)
    return {name: scores.get(name) for name in ("n", "pn", "ps", "fns", "size", "f1", "evaluations")}


# -- tables --------------------------------------------------------------------------------------------------


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def edit_table(kept: dict[str, dict[str, Row]]) -> list[str]:
    """Shares with a counterfactual, and what they cost."""
    lines = ["| case | method | n | found, % | edits | evaluations | CPU s |", "|---|---|--:|--:|--:|--:|--:|"]
    for case in CASES:
        for number, (method, r) in enumerate(kept.get(case.name, {}).items()):
            start = [case.name if not number else "", f"**{method}**" if method == "cf2" else method, str(r["n"])]
            cost = [f"{r['edits']:.2f}", f"{r['evaluations']:,.0f}", f"{r['seconds']:.3f}"]
            lines.append("| " + " | ".join([*start, percent(r["found"] / r["n"]), *cost]) + " |")
    return lines


def question_table(kept: dict[str, dict[str, Row]]) -> list[str]:
    """The three questions with removal only."""
    lines = [
        "| column | question or method | n | PN, % | PS, % | F_NS, % | size | F1, % | runs | larger than `why` |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in COLUMNS:
        for number, (method, r) in enumerate(kept.get(name, {}).items()):
            shares = [percent(r[part]) for part in ("pn", "ps", "fns")]
            over = f"{r['larger than why']} of {r['compared']}" if "compared" in r else "–"
            figures = [*shares, f"{r['size']:.2f}", percent(r["f1"]), f"{r['evaluations']:,.0f}"]
            cells = [name if not number else "", method, str(r["n"]), *figures, over]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def checks(kept: dict[str, dict[str, Row]]) -> str:
    """What the independent check says, in a sentence."""
    rows = [r for case in CASES for r in kept.get(case.name, {}).values()]
    answers, wrong = sum(r["n"] for r in rows), sum(r["contradictions"] for r in rows)
    said = f"Of {answers:,} verdicts of all methods in this table, {wrong} differ from the independent check."
    for r in (r for r in rows if "sanitised" in r):
        share = f"{r['sanitised']} of {r['status'].get('found', 0)}"
        said += f' With `valid="molecule"`, RDKit sanitises {share} answers in the independent check'
        said += f" ({r['sanitised_before']} of the {r['n']} molecules as they are)."
    return said


def write(page: Path, kept: dict[str, dict[str, Row]]) -> None:
    """Put the tables into the page, between their marks; one of which nothing was measured stays as it is."""
    text = page.read_text(encoding="utf-8")
    parts = {"edits": "\n".join([*edit_table(kept), "", checks(kept)]), "questions": "\n".join(question_table(kept))}
    measured = {"edits": any(case.name in kept for case in CASES), "questions": any(name in kept for name in COLUMNS)}
    for name, filling in parts.items():
        if not measured[name]:
            continue
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{filling}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=200, help="at most so many instances of a case")
    parser.add_argument("--first", type=int, default=20, help="so many instances for greedy without a limit, or 0")
    parser.add_argument("--keep", type=Path, help="a JSON file that keeps what is measured")
    parser.add_argument("--only", nargs="*", help="the names of some cases")
    parser.add_argument("--write", action="store_true", help="fill the tables of the documentation")
    given = parser.parse_args()
    kept: dict[str, dict[str, Row]] = {}
    if given.keep is not None and given.keep.exists():
        kept = json.loads(given.keep.read_text(encoding="utf-8"))
    todo: dict[str, Callable[[], dict[str, Row]]] = {}
    for case in CASES:
        todo[case.name] = lambda case=case: measure_case(case, given.most, given.first)  # type: ignore[misc]
    for name in COLUMNS:
        todo[name] = lambda name=name: measure_column(name, given.most)  # type: ignore[misc]
    with single_thread():
        for name, measured in todo.items():
            if name in kept or (given.only and name not in given.only):
                continue
            kept[name] = measured()
            print(name, json.dumps(kept[name]), flush=True)
            if given.keep is not None:
                given.keep.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")
    print("\n".join([*edit_table(kept), "", checks(kept), "", *question_table(kept)]))
    if given.write:
        write(PAGE, kept)


if __name__ == "__main__":
    main()
