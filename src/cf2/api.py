"""`cf2.explain`: the one function most people need."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch_geometric.data import Data

from cf2.errors import CF2Error, require
from cf2.explanation import Explanations
from cf2.instances import Graph
from cf2.methods import get
from cf2.methods.trained import Trained
from cf2.predictor import Masking, Output
from cf2.search import Search
from cf2.work import Progress, Session, Work, keys_of, labels_of


def plan(
    model: torch.nn.Module,
    data: Any,
    nodes: Any = None,
    *,
    method: str = "cf2",
    edges: bool = True,
    features: bool = False,
    search: bool = False,
    seed: int | None = None,
    output: Output = "auto",
    device: str | None = None,
    directed: bool | None = None,
    masking: Masking = "auto",
    target: Any = None,
    trained: Any = None,
    max_units: int | None = None,
    reduce: str | None = None,
    **settings: Any,
) -> tuple[Work, list[int]]:
    """The work that `explain` would do, and the keys it would do it for."""
    source = _source(data, nodes, directed)
    keys = keys_of(source, nodes)
    plan = _search(settings) if search and method != "cf2" else None
    classes = None
    if target is not None:
        listed = target.tolist() if hasattr(target, "tolist") else target
        given = [int(c) for c in (listed if isinstance(listed, list | tuple) else [listed])]
        require(len(given) == len(keys), f"Expected one class in `target` a key, {len(keys)}", got=len(given))
        classes = dict(zip(keys, given))
    work = Work(
        model,
        source,
        method=method,
        settings=settings,
        edges=edges,
        features=features,
        search=plan,
        seed=seed,
        output=output,
        device=device,
        directed=directed,
        masking=masking,
        classes=classes,
        labels=labels_of(data, keys) if isinstance(source, Graph) else labels_of(source, keys),
        trained=trained,
        max_units=max_units,
        reduce=reduce,
    )
    return work, keys


def explain(
    model: torch.nn.Module, data: Any, nodes: Any = None, *, progress: Progress | None = None, **options: Any
) -> Explanations:
    """Explain predictions of `model`: of nodes of one graph, or of graphs.

    `data` is a torch_geometric Data together with `nodes`, or a list or data set of Data. Options are `method`,
    `edges`, `features`, `search`, `seed`, `output`, `device`, `directed`, `masking`, `target`, `trained`,
    `max_units`, `reduce`; any further keyword is a setting of the method.

    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> found = cf2.explain(GCN(3, 8, 2, 2), data, nodes=[1])
    >>> len(found), found[0].key
    (1, 1)
    """
    work, keys = plan(model, data, nodes, **options)
    with Session(work) as session:
        return Explanations(tuple(session.explain(keys, progress)), {"method": work.method})


def fit(
    model: torch.nn.Module,
    data: Any,
    nodes: Any = None,
    *,
    method: str,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Trained:
    """Train a learned method (`gem`, `pgexplainer`) once on these nodes or graphs; pass it on as `trained=`.

    Options are those of `explain`. `trained.save(path)` keeps it, `cf2.load_trained(path)` brings it back.
    """
    work, keys = plan(model, data, nodes, method=method, seed=seed, **options)
    learn = get(method).fit
    if learn is None:
        raise CF2Error(f"Expected a method that is trained first, and {method!r} needs no training")
    started = time.perf_counter()
    with Session(work, fitting=True) as session:
        chunks = list(session.chunks(keys))
        trained: Trained = learn(chunks, session.settings, seed)
    return replace(trained, facts={**trained.facts, "seconds": time.perf_counter() - started})


def _search(settings: dict[str, Any]) -> Search:
    """The settings of the search, taken out of those of the method."""
    return Search(**{f.name: settings.pop(f.name) for f in fields(Search) if f.name in settings})


def _source(data: Any, nodes: Any, directed: bool | None) -> Graph | Sequence[Data]:
    if isinstance(data, Data) or hasattr(data, "node_types"):
        if nodes is None:
            raise CF2Error(
                "Expected `nodes` beside a single graph",
                got="none",
                do="Pass nodes=[…] to explain nodes, or a list of graphs, [data], to explain graphs.",
            )
        return Graph(data, directed=directed)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise CF2Error("Expected `data` to be a Data object, or a list or data set of them", got=type(data).__name__)
    require(len(data) > 0, "Expected at least one graph to explain", got="an empty list")
    require(
        isinstance(data[0], Data),
        "Expected `data` to be a Data object, or a list or data set of them",
        got=f"a {type(data).__name__} of {type(data[0]).__name__}",
    )
    graphs: Sequence[Data] = data
    return graphs
