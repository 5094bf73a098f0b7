"""Counterfactuals with edits, beside simpler ways; fills the tables in docs/counterfactuals.md.

    python benchmarks/counterfactuals.py [--most 200] [--keep FILE] [--only NAME …] [--write]

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

from cf2.core.hooks import single_thread
from cf2.paper.sources import from_dataset
from cf2.results import metrics
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.runs.model_and_data import ModelAndData
from cf2.runs.session import Session
from cf2.spec import Spec

PAGE = Path(__file__).parent.parent / "docs" / "counterfactuals.md"
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
    others: int = 0  # so many random nodes are candidates for an edge with the target, instead of those that are near


CASES = [
    Case("Mutag₀, remove + add", "mutag0", "non-mutagen", ("remove", "add"), 200),
    Case("Mutag₀, change", "mutag0", "non-mutagen", ("change",), 200),
    Case("Mutag₀, all three", "mutag0", "non-mutagen", ALL, 200),
    Case("Mutag₀, all three, valid molecules", "mutag0", "non-mutagen", ALL, 100, {"valid": "molecule"}),
    Case("Tree-Cycles, remove + add", "tree-cycles", "tree", ("remove", "add"), 150),
    Case("CiteSeer, remove + add", "citeseer", "DB", ("remove", "add"), 150),
    Case("CiteSeer, remove + add, 100 random papers to cite", "citeseer", "DB", ("remove", "add"), 150, others=100),
]
COLUMNS = {  # the six columns of the paper: data set and units
    "BA-Shapes": ("ba-shapes", "edges"),
    "Tree-Cycles": ("tree-cycles", "edges"),
    "Mutag₀": ("mutag0", "edges"),
    "NCI1": ("nci1", "edges"),
    "CiteSeer, edges": ("citeseer", "edges"),
    "CiteSeer, features": ("citeseer", "features"),
}
SAMPLE = 30  # instances of each of these columns
RIVALS = 20  # instances of a case that the other methods are measured on: greedy takes thousands of evaluations each


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


def measure_case(case: Case, most: int) -> dict[str, Row]:
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
    if case.others:
        spec = replace(spec, candidates=citable(source.graphs[0], keys, drawn[-case.others :]))
    valid = case.options.get("valid") == "molecule"
    ours, seconds = explained(source, keys, spec)
    rows = {"cf2": row(source, ours, seconds, before, valid)}
    if valid:
        good = [e for e in ours if e.status == "found"]
        rows["cf2"]["sanitised"] = sum(sanitised(source, e) for e in good)
        rows["cf2"]["sanitised_before"] = sum(sanitised(source, replace(e, selected=e.selected & False)) for e in ours)
    mean = max(round(rows["cf2"]["evaluations"]), 1)
    keys, ours = keys[:RIVALS], ours[:RIVALS]
    rows["cf2, the same instances"] = row(source, ours, sum(e.seconds for e in ours), before, valid)
    for name, budget in (("greedy", None), ("greedy, as many evaluations", mean)):
        limits = {} if budget is None else {"budget": budget}
        made, seconds = explained(source, keys, replace(spec, method="greedy", settings=limits))
        rows[name] = row(source, made, seconds, before, valid)
    typical = round(rows["cf2"]["edits"])
    sizes = [e.size if e.status == "found" else typical for e in ours]
    for method in ("gradient", "random"):
        started = time.process_time()
        made = of_sizes(source, keys, replace(spec, method=method, seed=0), sizes)
        rows[f"{method}, as many edits"] = row(source, made, time.process_time() - started, before, valid)
    return rows


def citable(graph: Data, keys: Sequence[int], others: Sequence[int]) -> Any:
    """By key, the pairs of a node with others that it has no edge with."""
    near = {tuple(pair) for pair in graph.edge_index.t().tolist()}
    return {key: [(key, other) for other in others if other != key and (key, other) not in near] for key in keys}


def measure_column(name: str, most: int) -> dict[str, Row]:
    """The three questions on the paper's instances, removal only, and the baselines of each kind."""
    dataset, units = COLUMNS[name]
    source = from_dataset(dataset)
    asked = source.keys()
    keys = [int(key) for key in asked[: min(most, SAMPLE)]]  # type: ignore[arg-type]
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
        "| column | question or method | PN, % | PS, % | F_NS, % | size | F1, % | larger than `why` |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name in COLUMNS:
        for number, (method, r) in enumerate(kept.get(name, {}).items()):
            shares = [percent(r[part]) for part in ("pn", "ps", "fns")]
            over = f"{r['larger than why']} of {r['compared']}" if "compared" in r else "–"
            cells = [name if not number else "", method, *shares, f"{r['size']:.2f}", percent(r["f1"]), over]
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
    """Put the tables into the page, between their marks."""
    text = page.read_text(encoding="utf-8")
    parts = {"edits": "\n".join([*edit_table(kept), "", checks(kept)]), "questions": "\n".join(question_table(kept))}
    for name, filling in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{filling}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=200, help="at most so many instances of a case")
    parser.add_argument("--keep", type=Path, help="a JSON file that keeps what is measured")
    parser.add_argument("--only", nargs="*", help="the names of some cases")
    parser.add_argument("--write", action="store_true", help="fill the tables of the documentation")
    given = parser.parse_args()
    kept: dict[str, dict[str, Row]] = {}
    if given.keep is not None and given.keep.exists():
        kept = json.loads(given.keep.read_text(encoding="utf-8"))
    todo: dict[str, Callable[[], dict[str, Row]]] = {}
    for case in CASES:
        todo[case.name] = lambda case=case: measure_case(case, given.most)  # type: ignore[misc]
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
