"""`cf2 bench`: ratios in one run on one machine, because seconds from another machine mean nothing.

>>> sorted(SECTIONS)
['extraction', 'first_call', 'gnnexplainer', 'hub', 'pgexplainer', 'short_cuts', 'single', 'workers']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.utils import k_hop_subgraph

from bench import calls, rivals
from bench.graphs import big_request, citations, molecules, resized, shapes
from bench.timing import cpu, explained, per_explanation, wall
from cf2.errors import require, unknown_name
from cf2.models.predictor import Predictor
from cf2.models.receptive_field import ReceptiveField
from cf2.options import Key, Spec
from cf2.results import metrics
from cf2.results.explanations import Explanations
from cf2.runs import engines
from cf2.runs.session import Request
from cf2.runs.source import ModelAndData
from cf2.sets.oracle import SHORT_CUTS

LOOPED = 6  # instances of a rival's loop; its time per explanation does not depend on their number
EPOCHS = 500
SHARE = 64  # instances of a chunk, so that no worker waits long for the last one
Figures = dict[str, float]
Progress = Callable[[str, int, int], None]  # what is measured, how many are done, of how many


def run(
    *,
    full: bool = False,
    out: str | Path = "benchmarks/measured",
    sections: Sequence[str] | None = None,
    curves: Sequence[str] | None = None,
    root: str | Path | None = None,
    progress: Progress | None = None,
) -> Figures:
    """The figures of the named sections, or of all: ratios, and seconds under names that end in `_seconds`.

    A ratio above 1 says how many times faster we are, except where its name says what it is. With `full`, the
    curves are measured too, and everything is written as `benchmarks.md` with plots under `out`.
    """
    from bench.curves import CURVES
    from bench.page import write_page

    chosen = _known("a section", sections, SECTIONS)
    varied = _known("a curve", curves, CURVES) if full else []
    say = progress or (lambda label, done, total: None)
    total = len(chosen) + len(varied)
    figures: Figures = {}
    for done, name in enumerate(chosen):
        say(name, done, total)
        figures |= {key: float(f"{value:.4g}") for key, value in SECTIONS[name](root).items()}
    made = []
    for done, name in enumerate(varied, start=len(chosen)):
        say(name, done, total)
        made.append(CURVES[name]())
    if full:
        missing = [name for name in dict.fromkeys([*SECTIONS, *CURVES]) if name not in (*chosen, *varied)]
        write_page(Path(out), figures, made, missing)
    return figures


def _known(kind: str, names: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    known = list(known)
    for name in names or ():
        if name not in known:
            raise unknown_name(f"{kind} of the benchmark", name, known)
    return known if names is None else list(names)


def against_gnnexplainer(root: str | Path | None = None) -> Figures:
    """Packed against looped, the same 500 epochs; and the verified method against the loop."""
    figures: Figures = {}
    molecular = molecules(root)
    sources = {"ba_shapes_hidden16": shapes()}
    if molecular is not None:
        sources = {"mutag0_hidden128": molecular, "mutag0_hidden16": resized(molecular, 16)} | sources
    for name, source in sources.items():
        keys = source.keys()[: 90 if source.level == "graph" else 16]  # a node's graph is some ten times larger
        compared = _compare(source, keys, trained=name != "mutag0_hidden16")
        figures |= {f"{name}_{key}": value for key, value in compared.items()}
    return figures


def _compare(source: ModelAndData, keys: Sequence[Key], trained: bool) -> Figures:
    """An untrained model costs the same an epoch, but when it has converged or is verified means nothing."""
    looped = rivals.gnnexplainer(source, keys[: LOOPED if source.level == "graph" else 2], EPOCHS)
    figures = {"gnnexplainer_seconds": looped}
    plans: list[tuple[str, str, dict[str, Any]]] = [("relaxed", "cf2-relaxed", {"epochs": EPOCHS})]
    if trained:
        plans.append(("relaxed_patience", "cf2-relaxed", {"epochs": EPOCHS, "patience": 25}))
        plans += [("verified", "cf2", {}), ("quick", "cf2", {"effort": "quick"})]
    for name, method, settings in plans:
        seconds, found = explained(source.request(keys, Spec(method, settings=settings)), keys)
        figures[f"{name}_seconds"] = seconds
        figures[f"{name}_vs_gnnexplainer"] = looped / seconds
        if method == "cf2":  # what the speed is not bought with
            about = metrics.summary(Explanations(tuple(found), {}))
            figures |= {f"{name}_{what}": float(about[what]) for what in ("fns", "size", "evaluations")}
            figures[f"{name}_share_proved"] = sum(bool(e.optimal) for e in found) / len(found)
    return figures


def against_pgexplainer(root: str | Path | None = None) -> Figures:
    """The verified method against PGExplainer, whose training is shared by the instances that it explains."""
    source = molecules(root) or shapes()
    keys = source.keys()
    looped = rivals.pgexplainer(source, keys[:LOOPED])
    seconds = per_explanation(source.request(keys, Spec("cf2")), keys)
    return {"pgexplainer_seconds": looped, "verified_vs_pgexplainer": looped / seconds}


def extraction(root: str | Path | None = None) -> Figures:
    """Cutting and explaining nodes of 10⁶ nodes and 10⁷ edges against the same ones of 10⁴ and 10⁵."""
    cuts, explained = {}, {}
    for count in (1, 100):
        request, nodes = big_request(count)
        keys = nodes[:: len(nodes) // 64][:64]
        cuts[count] = cut_seconds(request, nodes[::20])
        explained[count] = per_explanation(request, keys)
    graph = request.targets.graph
    assert graph is not None
    edge_index, total = graph.edge_index, graph.num_nodes

    def hops() -> None:
        for node in keys[:3]:
            k_hop_subgraph(node, 2, edge_index, relabel_nodes=True, num_nodes=total)

    return {
        "cut_seconds": cuts[100],
        "cut_time_1e6_nodes_over_1e4": cuts[100] / cuts[1],
        "cut_vs_k_hop_subgraph": cpu(hops) / 3 / cuts[100],
        "verified_seconds_1e6_nodes": explained[100],
        "verified_time_1e6_nodes_over_1e4": explained[100] / explained[1],
    }


def cut_seconds(request: Request, nodes: Sequence[Key]) -> float:
    """CPU seconds of cutting one receptive field."""
    with Predictor(request.model, request.targets.level) as predictor:
        field = ReceptiveField(predictor, request.targets)
        field.instances(nodes[:1])  # how far the model looks is measured once
        return cpu(lambda: field.instances(nodes)) / len(nodes)


def workers(root: str | Path | None = None, instances: int = 640, engine: str = "processes") -> Figures:
    """Throughput of two workers over that of one, on the wall clock: it needs two idle cores."""
    if engines.cores() < 2:
        return {}
    seconds = worker_seconds(instances, (1, 2), engine)
    return {f"{engine}_2_workers_over_1": seconds[1] / seconds[2]}


def worker_seconds(
    instances: int, counts: Sequence[int], engine: str = "processes", times: int = 1
) -> dict[int, float]:
    """Seconds on the wall clock by number of workers, for BA-Shapes instances; the best of so many `times`.

    Local processes are started anew and count. A Ray cluster is there before, and has the model loaded.
    """
    source = shapes()
    keys = np.resize(source.keys(), instances).tolist()
    request = source.request(keys, Spec("cf2-relaxed", settings={"epochs": 30}))
    found: dict[int, float] = {}
    for count in [*counts] * times:
        options: dict[str, Any] = {"engine": engine, "workers": count, "chunk_size": SHARE}
        options["on_chunk"] = lambda number, found: None
        with engines.ready(engine, workers=count):
            engines.explain_many(request, keys[: 8 * SHARE * count], **options)  # every worker has a first chunk
            seconds = wall(lambda o=options: engines.explain_many(request, keys, **o))  # type: ignore[misc]
        found[count] = min(seconds, found.get(count, seconds))
    return found


def short_cuts(root: str | Path | None = None, instances: int = 24) -> Figures:
    """The time without each short cut over the time with all of them.

    The answers are the same. Without own fields, proofs cannot list connected sets alone: then a set may be larger.
    """
    figures: Figures = {}
    sources = {"ba_shapes": shapes(), "mutag0": molecules(root, 16), "citeseer": citations(root)}
    for name, source in sources.items():
        if source is None:
            continue
        keys = source.keys()[: instances if name != "mutag0" else 1]
        request = source.request(keys, Spec("cf2"))
        seconds, found = explained(request, keys)
        for cut in sorted(SHORT_CUTS):
            SHORT_CUTS.discard(cut)
            try:
                without, again = explained(request, keys)
            finally:
                SHORT_CUTS.add(cut)
            pairs = [(e, other) for e, other in zip(found, again) if e.selected.tolist() != other.selected.tolist()]
            same = all(cut == "fields" and e.status == other.status and e.size <= other.size for e, other in pairs)
            require(same, "Expected the same sets without a short cut", got=f"others on {name} without {cut}")
            figures[f"{name}_without_{cut}"] = without / seconds
    return figures


SECTIONS: dict[str, Callable[..., Figures]] = {
    "gnnexplainer": against_gnnexplainer,
    "pgexplainer": against_pgexplainer,
    "extraction": extraction,
    "single": calls.single,
    "first_call": calls.first_call,
    "hub": calls.hub,
    "workers": workers,
    "short_cuts": short_cuts,
}
