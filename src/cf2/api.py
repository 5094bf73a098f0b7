"""`cf2.explain`, `cf2.counterfactual`, `cf2.fit` and `cf2.Explainer`: from model, data and options to explanations."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import torch
from torch_geometric.data import Data, HeteroData

from cf2.errors import reading, require
from cf2.graphs.data import graphs_of, groups_of
from cf2.graphs.targets import GraphTargets, Targets
from cf2.methods import registry
from cf2.methods.trained import Trained, check_needs
from cf2.models.adapters import module_of
from cf2.models.chemprop import molecules_of
from cf2.options import (
    AUTO,
    CounterfactualOptions,
    ExplainOptions,
    FitOptions,
    Key,
    Spec,
    bounded,
    listed,
    meanings,
    rows_of,
    with_options,
)
from cf2.results.explanations import Explanations
from cf2.results.names import Names
from cf2.runs.progress import heard, log, say_interrupted, still_working, told
from cf2.runs.session import ModelCache, Request, Session, check_names, train

if TYPE_CHECKING:
    from torch import Tensor

Graphs: TypeAlias = Data | HeteroData | Iterable[Data | HeteroData]
Nodes: TypeAlias = "int | slice | Iterable[int] | Iterable[bool] | Tensor | None"
DEFAULT_UNITS = AUTO
NodePairs: TypeAlias = "Iterable[tuple[int, int]] | Tensor | None"
Classes: TypeAlias = "int | str | Sequence[int | str] | Mapping[Key, int | str] | Tensor | None"


@with_options(ExplainOptions)
def explain(
    model: torch.nn.Module,
    data: Graphs,
    nodes: Nodes = None,
    *,
    pairs: NodePairs = None,
    **selected: Unpack[ExplainOptions],
) -> Explanations:
    """Explain predictions for nodes, node pairs or graphs.

    Parameters
    ----------
    model : torch.nn.Module, or the path of a Chemprop checkpoint
        Any torch module with graph layers, or a Chemprop MPNN; it is not modified. Reading a checkpoint runs no code
        from it; files with other contents than weights, layers and metrics of Chemprop are refused.
    data : Data or HeteroData, or a list, data set, Batch or DataLoader of them; SMILES for a Chemprop model
        The graph whose nodes or pairs are explained, or the graphs to explain. A DataLoader is replaced by its dataset,
        in dataset order. For Chemprop: SMILES, RDKit molecules, or a MoleculeDataset.
    nodes : int, slice, ids in a list, array or tensor, or a mask, optional
        The nodes to explain, in this order; for several graphs, their positions (default: all). A mask such as
        `data.test_mask` holds a bool for every node. Sets are sorted; duplicates are explained twice.
    pairs : pairs (u, v) in a list, an array or tensor of shape [n, 2] or [2, n], optional
        Node pairs to explain, for link prediction models. They need not be edges of the graph.
    {options}

    Returns
    -------
    Explanations
        One per key, in order. Ctrl-C returns the finished explanations; if there are none, KeyboardInterrupt is raised.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data, HeteroData
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> found = cf2.explain(GCN(3, 8, 2, 2), data, nodes=[1])
    >>> len(found), found[0].key
    (1, 1)
    """
    return Explainer(model, data).explain(nodes, pairs=pairs, **selected)


@with_options(CounterfactualOptions)
def counterfactual(
    model: torch.nn.Module,
    data: Graphs,
    nodes: Nodes = None,
    *,
    pairs: NodePairs = None,
    to: Classes = None,
    **selected: Unpack[CounterfactualOptions],
) -> Explanations:
    """Find the smallest set of edits that changes a prediction.

    This is `cf2.explain` with ``question="counterfactual"``.

    Parameters
    ----------
    model, data, nodes, pairs
        As in `cf2.explain`.
    to : int or str, or one for each key, optional
        The class to reach. Default: any class but the predicted one.
    {options}

    Returns
    -------
    Explanations
        One per key, in their order. `e.edits` lists the edits, and `e.apply(data)` applies them to a copy.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> (e,) = cf2.counterfactual(GCN(3, 8, 2, 2), data, nodes=[1], to=0, edits=("remove", "change"))
    >>> e.question, e.target
    ('counterfactual', 0)
    """
    return Explainer(model, data).counterfactual(nodes, pairs=pairs, to=to, **selected)


@with_options(FitOptions)
def fit(
    model: torch.nn.Module,
    data: Graphs,
    nodes: Nodes = None,
    *,
    pairs: NodePairs = None,
    method: str,
    seed: int = 0,
    **selected: Unpack[FitOptions],
) -> Trained:
    """Train a method that needs training, once, on these nodes or graphs.

    Parameters
    ----------
    model, data, nodes, pairs
        As in `cf2.explain`.
    method : str
        A method that needs training, such as ``"gem"`` or ``"pgexplainer"``.
    seed : int
        Seed of the initial weights and of all random numbers.
    {options}

    Returns
    -------
    Trained
        Pass it to `cf2.explain` as `trained=`. `save(path)` writes it, `cf2.load_trained(path)` reads it.
    """
    given = {"method": method, "seed": seed, **selected}
    return train(*plan(ModelCache(model, data), nodes, pairs, given, FitOptions))


class Explainer:
    """A model and its data; measurements are reused between calls.

    The graph is checked and indexed once. The receptive field of the model and its outputs on the whole graph are
    measured once. Both are repeated if the weights of the model or the tensors of a graph have changed.

    Parameters
    ----------
    model, data
        As in `cf2.explain`.
    """

    def __init__(self, model: torch.nn.Module, data: Graphs) -> None:
        self._molecules = molecules_of(model, data)
        if self._molecules is not None:
            model, data = self._molecules.model, self._molecules.graphs
        self.model, self.data = model, data
        self._cache = ModelCache(model, data)

    def __repr__(self) -> str:
        data, what = self.data, "graphs"
        if isinstance(data, Data | HeteroData):
            what = f"a graph of {data.num_nodes:,} nodes and {data.num_edges:,} edges"
        elif isinstance(data, Sized):
            what = f"{len(data):,} graphs"
        return f"<Explainer of {type(module_of(self.model)).__name__} on {what}: .explain(nodes=…) explains>"

    @with_options(ExplainOptions)
    def explain(
        self, nodes: Nodes = None, *, pairs: NodePairs = None, **selected: Unpack[ExplainOptions]
    ) -> Explanations:
        """Explain predictions, as `cf2.explain` does.

        Parameters
        ----------
        nodes, pairs
            As in `cf2.explain`.
        {options}

        Returns
        -------
        Explanations
            One per key, in their order.
        """
        with heard(selected.get("verbose", False)):
            given: Mapping[str, Any] = selected
            if self._molecules is not None:
                given = self._molecules.options(given)
            require(given.get("tasks") is None, "Expected a Chemprop model for `tasks`", got=type(self.model).__name__)
            request, keys = plan(self._cache, nodes, pairs, given)
            context, spec = self._cache.context(request, keys), request.spec
            level = request.targets.level
            log.info("Explaining %d of level %s by %s: %s", len(keys), level, spec.method, spec.question)
            started = time.perf_counter()
            session = Session(request)
            try:
                asked = selected.get("progress")
                bar = told(asked, len(keys), session.answers.so_far)
                with bar as tell, still_working(session, quiet=asked is False), session:
                    session.explain(keys, tell, best_so_far=True)
                    interrupted = session.interrupted
                    self._cache.learn(session)
            except KeyboardInterrupt:
                if not session.finished:
                    raise
                interrupted = True
            finally:
                session.predictor.give_back()  # whatever an interrupt has kept from being given back
            if interrupted:
                context["partial"] = say_interrupted(session.finished, len(keys))
            context = self._cache.with_edges(context, request.targets, session.finished)
            explanations = Explanations(tuple(session.finished), context)
            counts = Counter(e.status for e in explanations)
            statuses = ", ".join(f"{count} {status}" for status, count in counts.items())
            log.info("Explained %d in %.1f s: %s", len(keys), time.perf_counter() - started, statuses or "nothing")
            return explanations

    @with_options(CounterfactualOptions)
    def counterfactual(
        self,
        nodes: Nodes = None,
        *,
        pairs: NodePairs = None,
        to: Classes = None,
        **selected: Unpack[CounterfactualOptions],
    ) -> Explanations:
        """Find the smallest set of edits that changes a prediction, as `cf2.counterfactual` does.

        Parameters
        ----------
        nodes, pairs, to
            As in `cf2.counterfactual`.
        {options}

        Returns
        -------
        Explanations
            One per key, in their order.
        """
        asked = "question" in selected
        require(not asked, "Expected no `question` for a counterfactual", got="one", do="Use cf2.explain(question=…).")
        require(to is None or selected.get("target") is None, "Expected either `to` or `target`", got="both")
        if to is not None:
            selected["target"] = to
        return self.explain(nodes, pairs=pairs, question="counterfactual", **selected)


def plan(
    cache: ModelCache, nodes: Any, pairs: Any, given: Mapping[str, Any], options: type = ExplainOptions
) -> tuple[Request, list[Key]]:
    """The request that keywords ask for, and its keys; keywords that are no `options` are settings of the method."""
    allowed = {*rows_of(options), "method", "seed"}
    settings = {name: value for name, value in given.items() if name not in allowed}
    chosen = {name: given[name] for name in meanings() if name in given and name in allowed}
    valid, target = chosen.pop("valid", None), chosen.pop("target", None)
    if "groups" in chosen:
        chosen["groups"] = groups_of(chosen["groups"], cache.data)
    if pairs is not None:
        chosen["level"] = "pair"
    if options is ExplainOptions:
        chosen.setdefault("units", DEFAULT_UNITS)
    spec = Spec(**chosen, valid=None if callable(valid) else valid, settings=settings)
    check_names(spec, {*allowed, "nodes", "pairs"})
    require(nodes is None or pairs is None, "Expected either `nodes` or `pairs`", got="both")
    named = nodes if pairs is None else pairs
    targets = cache.targets(named, spec)
    keys = targets.check(named)
    named_things = {name: given.get(name) for name in ("class_names", "node_names", "feature_names", "smiles")}
    names = Names(**named_things, atoms=spec.atoms)
    if target is not None:
        spec = replace(spec, target=_by_key(names.number(target), keys, len(targets)))
    about_edges = spec.groups is not None or spec.keep or spec.forbid or spec.connected or spec.sizes is not None
    if spec.units == (AUTO,) and (spec.edits != ("remove",) or about_edges):
        spec = replace(spec, units=("edges",))
    if isinstance(spec.sizes, tuple):
        missing = next((key for key in keys if key not in dict(spec.sizes)), None)
        require(missing is None, "Expected a size in `sizes` for every key", got=f"none for {missing}")
    request = Request(
        module_of(cache.model),
        targets,
        spec,
        check_needs(registry.get(spec.method), given.get("trained")),
        targets.labels(keys),
        valid=valid if callable(valid) else None,
        call=given.get("call"),
        names=names,
        reference=_reference(given.get("reference"), targets),
    )
    measured = cache.measured(request)
    return request if measured is None else replace(request, measured=measured), keys


def _reference(given: Any, targets: Targets) -> Targets | None:
    """The graphs that are given as `reference`, with features of the kind that is explained."""
    if given is None:
        return None
    graphs = graphs_of(given, "graph", positions=True)
    reference = GraphTargets([graphs] if isinstance(graphs, Data | HeteroData) else graphs)
    require(reference.schema == targets.schema, "Expected graphs in `reference` with the types of `data`", got="others")
    widths = (
        [0, 0] if targets.schema else [(known.graph or known.instance(0)).x.size(1) for known in (reference, targets)]
    )
    expected = f"Expected graphs in `reference` with {widths[1]} feature columns, as in `data`"
    require(widths[0] == widths[1], expected, got=widths[0])
    return reference


def _by_key(target: Any, keys: Sequence[Key], count: int) -> Any:
    """A class for all keys, or pairs of a key and its class, which the Spec checks."""
    if isinstance(target, Mapping):
        return target
    with reading(target, "Expected `target` to be a class, or one for each key"):  # a tensor may hold no values
        classes = bounded(target) if isinstance(target, range) else listed(target)
    if not isinstance(classes, list | tuple):
        return classes
    require(
        len(classes) == len(keys),
        f"Expected one class in `target` per key, {len(keys)}",
        got=len(classes),
        do="Pass target[nodes], the classes of the explained nodes." if len(classes) == count else "",
    )
    return tuple(zip(keys, classes))
