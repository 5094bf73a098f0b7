"""How surely explanations decide, over contexts, and what sets that decide surely cost.

    python benchmarks/contexts.py [--most 10] [--only NAME …] [--stability N]

Settings are the data sets and models that are shipped, and GCN, GIN, GAT and SAGE with BatchNorm and max pooling that
are trained here on Mutagenicity and NCI1 (`nets.py`). Kept are the instances for which `cf2` finds an answer that
the model does not also give to an empty graph. All sets meet the same 256 contexts, which no search has seen. Methods
that rank choose as many edges as `cf2`. `measured/contexts.json` has what is measured, setting by setting.

`--stability N` asks something else: how far answers stay the same when 1, 3 and 5 edges are added at random that leave
the prediction as it is, for N molecules (`measured/stability.json`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
from nets import LAYERS, classes, trained
from torch_geometric.data import Data

import cf2
from cf2.methods import registry
from cf2.models.soft_masks import single_thread
from cf2.options import Key, Spec
from cf2.results.explanation import Explanation
from cf2.runs.session import Session
from cf2.samples.sources import from_dataset

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction.robustness import with_noise

CONTEXTS = 256
NOISE = (1, 3, 5)  # edges that are added
SKIPPED = 80  # test graphs; by these, on the GCN for Mutagenicity, the search was tuned
EPOCHS = 15
SHIPPED = ("ba-shapes", "tree-cycles", "mutag0", "nci1", "citeseer", "citeseer, features", "mutag")
TRAINED = tuple((layer, name) for name in ("mutag", "nci1") for layer in LAYERS)
OTHERS = ("cf2-relaxed", "gnnexplainer", "gradient", "subgraphx", "random")
COLUMNS = {"setting": "", "n": "d", "method": "", "size": ".1f", "PS": ".2f", "PN": ".2f", "PNS": ".2f"}
COLUMNS |= {"reached": "d", "evaluations": ",.0f", "times `cf2` alone": ".1f", "CPU s": ".2f"}
Explain = Callable[[Sequence[Key], Spec], list[Explanation]]  # explanations of some keys
Row = list[Any]  # in the order of COLUMNS, without the setting


def shipped(name: str) -> tuple[list[Key], Explain]:
    """A data set with the model that is shipped for it, explained by edges, or by the units after a comma."""
    name, _, units = name.partition(", ")
    source = from_dataset(name)

    def explain(keys: Sequence[Key], spec: Spec) -> list[Explanation]:
        with Session(source.request(keys, replace(spec, units=(units,)) if units else spec)) as session:
            return session.explain(keys)

    return list(source.keys()), explain


def trained_here(layer: str, name: str) -> tuple[list[Key], Explain]:
    """A model that is trained here, and its test graphs."""
    graphs = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in cf2.datasets.load(name).graphs]
    model, test, accuracy = trained(graphs, EPOCHS, layer=layer)
    print(f"{layer}: accuracy on {len(test)} test graphs of {name}: {100 * accuracy:.1f} %", flush=True)

    def explain(keys: Sequence[Key], spec: Spec) -> list[Explanation]:
        own: dict[str, Any] = {"contexts": spec.contexts, "surely": spec.surely, "method": spec.method}
        own |= {} if spec.sizes is None else {"sizes": spec.sizes}
        return list(cf2.explain(model, graphs, list(keys), question=spec.question, seed=spec.seed, **own))

    return list(test)[SKIPPED:], explain


def row(method: str, found: Sequence[Explanation], seconds: float, alone: float) -> Row:
    """Means over the instances of a setting; `alone` is the cost of `cf2` without contexts."""
    means = [float(np.mean([part[0] for e in found if (part := getattr(e, name))])) for name in ("ps", "pn", "pns")]
    size, runs = (float(np.mean([getattr(e, name) for e in found])) for name in ("size", "evaluations"))
    reached = sum(e.status == "found" for e in found) if found[0].surely else None
    return [
        len(found),
        method,
        size,
        *means,
        reached,
        runs,
        runs / alone if found[0].surely else None,
        seconds / len(found),
    ]


def measure(keys: Sequence[Key], explain: Explain, most: int) -> list[Row]:
    """The rows of a setting; none where no instance is kept."""
    drawn = [e for e in explain(keys[: 10 * most], Spec()) if e.status == "found"]
    empty = explain([e.key for e in drawn], Spec(question="factual"))  # the smallest sufficient set is then empty
    first = [e for e, alone in zip(drawn, empty) if alone.size][:most]
    kept, sizes = [e.key for e in first], tuple((e.key, e.size) for e in first)
    asked = {"`cf2`": Spec(contexts=CONTEXTS)}
    asked |= {f"`surely={goal}`": Spec(surely=goal, contexts=CONTEXTS) for goal in (0.5, 0.7, 0.9)}
    for name in OTHERS:  # a method that does not only rank chooses its own size
        own = sizes if registry.get(name).ranks else None
        asked[name] = Spec(method=name, sizes=own, contexts=CONTEXTS, seed=0)
    alone = float(np.mean([e.evaluations for e in first])) if first else 0.0
    rows = []
    for name, spec in asked.items() if kept else ():
        started = time.process_time()
        try:
            found = explain(kept, spec)
        except cf2.CF2Error as error:
            print(f"{name}: {error}", flush=True)  # a method that does not know these units
            continue
        rows.append(row(name, found, time.process_time() - started, alone))
        print(rows[-1], flush=True)
    return rows


def stability(most: int) -> list[dict[str, Any]]:
    """Mean Jaccard overlap of the edges that are chosen before and after noise; edges of noise do not count."""
    graphs = [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in cf2.datasets.load("mutag").graphs]
    model, test, _ = trained(graphs, EPOCHS)
    draw, kept = torch.Generator().manual_seed(0), list[Data]()
    sizes: list[int] = []
    for e in cf2.explain(model, graphs, list(test)[SKIPPED : SKIPPED + 5 * most], units=("edges",)):
        noisy = [with_noise(lambda some: classes(model, some), graphs[e.key], count, draw) for count in NOISE]
        if e.status == "found" and all(graph is not None for graph in noisy) and len(sizes) < most:
            kept += [graphs[e.key], *noisy]  # one after the other
            sizes.append(e.size)
    every = len(NOISE) + 1
    same = tuple((place, sizes[place // every]) for place in range(len(kept)))
    asked: dict[str, dict[str, Any]] = {"`cf2`": {}, "`surely=0.9`": {"surely": 0.9}}
    asked |= {f"`{name}`": {"method": name, "sizes": same} for name in ("gnnexplainer", "gradient")}
    asked["`gnnexplainer`, each graph from a random start"] = {**asked["`gnnexplainer`"], "seed": 0}
    rows = []
    for name, options in asked.items():
        started, found = time.process_time(), cf2.explain(model, kept, units=("edges",), **options)
        chosen = [set(map(tuple, e.chosen("edges").tolist())) for e in found]
        row = {"method": name, "n": len(sizes), "size": float(np.mean([e.size for e in found[::every]]))}
        for number, count in enumerate(NOISE, 1):
            overlaps = []
            for place in range(0, len(kept), every):
                old = set(map(tuple, kept[place].edge_index.t().tolist()))
                before, after = chosen[place], chosen[place + number] & old
                overlaps.append(len(before & after) / max(len(before | after), 1))
            row[f"Jaccard, {count} added"] = float(np.mean(overlaps))
        rows.append({**row, "CPU s": (time.process_time() - started) / len(kept)})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=10, help="so many instances of each setting")
    parser.add_argument("--only", nargs="*", help="the names of some settings, such as mutag0 or GIN-nci1")
    parser.add_argument("--stability", type=int, help="measure the stability of so many answers, and nothing else")
    given = parser.parse_args()
    if given.stability:
        words = f"GCN on Mutagenicity, trained by `contexts.py --stability {given.stability}` for {EPOCHS} epochs"
        with single_thread():
            rows = stability(given.stability)
        forms = {name: "" if name == "method" else "d" if name == "n" else ".2f" for name in rows[0]}
        command = f"python benchmarks/contexts.py --stability {given.stability}"
        figures.keep("stability", command, forms, [list(row.values()) for row in rows], trained=words)
        return
    making: dict[str, Callable[[], tuple[list[Key], Explain]]] = {
        **{name: lambda name=name: shipped(name) for name in SHIPPED},
        **{f"{layer}-{name}": lambda pair=(layer, name): trained_here(*pair) for layer, name in TRAINED},
    }
    chosen = [name for name in making if given.only is None or name in given.only]
    rows = [row for row in figures.read("contexts")["rows"] if row[0] not in chosen]
    with single_thread():
        for name in chosen:
            print(name, flush=True)
            rows += [[name, *row] for row in measure(*making[name](), given.most)]
    rows.sort(key=lambda row: list(making).index(row[0]))
    words = f"{', '.join(LAYERS)} on Mutagenicity and NCI1, trained by the script for {EPOCHS} epochs"
    command = f"python benchmarks/contexts.py --most {given.most}"
    figures.keep(
        "contexts", command, COLUMNS, rows, list(dict.fromkeys(name.partition(", ")[0] for name in SHIPPED)), words
    )


if __name__ == "__main__":
    main()
