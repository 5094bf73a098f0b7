"""How surely explanations decide: PS, PN and PNS over contexts, by method; fills docs/verdicts.md.

    python benchmarks/contexts.py [--most 40] [--write]

Three settings: the models that are shipped for Mutag0 and BA-Shapes, and a GCN with BatchNorm and max pooling that is
trained on Mutagenicity (as in `stability.py`). Kept are the instances for which `cf2` finds an answer that the model
does not also give to an empty graph. All sets meet the same 256 contexts, which no search has seen. `gnnexplainer` and
`random` choose as many edges as the row above them says.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stability import trained
from torch_geometric.data import Data

import cf2
from cf2.models.soft_masks import single_thread
from cf2.options import Key, Spec
from cf2.results.explanation import Explanation
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

PAGE = Path(__file__).parent.parent / "docs" / "verdicts.md"
BEGIN, END = "<!-- contexts: begin -->", "<!-- contexts: end -->"
CONTEXTS = 256
Explain = Callable[[Sequence[Key], Spec], list[Explanation]]  # explanations of some keys


def shipped(name: str) -> tuple[list[Key], Explain]:
    """A data set with the model that is shipped for it."""
    source = from_dataset(name)

    def explain(keys: Sequence[Key], spec: Spec) -> list[Explanation]:
        with Session(source.request(keys, spec)) as session:
            return session.explain(keys)

    return list(source.keys()), explain


def mutagenicity() -> tuple[list[Key], Explain]:
    """The GCN that is trained here, and its test graphs."""
    graphs = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in cf2.datasets.load("mutag").graphs]
    model, test, accuracy = trained(graphs)
    print(f"accuracy on {len(test)} test graphs: {100 * accuracy:.1f} %", flush=True)

    def explain(keys: Sequence[Key], spec: Spec) -> list[Explanation]:
        own: dict[str, Any] = {"contexts": spec.contexts, "surely": spec.surely, "method": spec.method}
        own |= {} if spec.sizes is None else {"sizes": spec.sizes}
        return list(cf2.explain(model, graphs, list(keys), question=spec.question, seed=spec.seed, **own))

    return list(test), explain


def row(setting: str, name: str, found: Sequence[Explanation]) -> str:
    """One line of the table, with means over the instances."""
    means = [np.mean([part[0] for e in found if (part := getattr(e, field))]) for field in ("ps", "pn", "pns")]
    reached = f"{sum(e.status == 'found' for e in found)}" if found[0].surely else ""
    cells = [setting, str(len(found)), name, f"{np.mean([e.size for e in found]):.1f}"]
    cells += [f"{value:.2f}" for value in means]
    return f"| {' | '.join([*cells, reached, f'{np.mean([e.evaluations for e in found]):,.0f}'])} |"


def table(setting: str, keys: Sequence[Key], explain: Explain, most: int) -> list[str]:
    """The rows of a setting."""
    drawn = [e for e in explain(keys[: 4 * most], Spec(contexts=CONTEXTS)) if e.status == "found"]
    empty = explain([e.key for e in drawn], Spec(question="factual"))  # the smallest sufficient set is then empty
    first = [e for e, alone in zip(drawn, empty) if alone.size][:most]
    print(f"{setting}: {len(first)} kept of {len(drawn)} with an answer", flush=True)
    kept = [e.key for e in first]
    answers = {"`cf2`": first}
    for goal in (0.5, 0.7, 0.9):
        answers[f"`surely={goal}`"] = explain(kept, Spec(surely=goal, contexts=CONTEXTS))
    lines = []
    for name, found in answers.items():
        lines.append(row(setting, name, found))
        if name in ("`cf2`", "`surely=0.9`"):
            sizes = tuple((e.key, e.size) for e in found)
            for method, seed in (("gnnexplainer", None), ("random", 0)):
                spec = Spec(method=method, sizes=sizes, contexts=CONTEXTS, seed=seed)
                lines.append(row(setting, f"{method}, as many", explain(kept, spec)))
    print(*lines, sep="\n", flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=40, help="so many instances of each setting")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    given = parser.parse_args()
    lines = [
        "| setting | n | method | size | PS | PN | PNS | reached | evaluations |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    with single_thread():
        lines += table("Mutag0, shipped", *shipped("mutag0"), given.most)
        lines += table("BA-Shapes, shipped", *shipped("ba-shapes"), given.most)
        lines += table("Mutagenicity, GCN", *mutagenicity(), given.most)
    if given.write:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        text = f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END)[1]}"
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
