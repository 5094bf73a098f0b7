"""`cf2.explain` and `cf2.fit`, the two functions most people need."""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch_geometric.data import Data, HeteroData

from cf2.graphs.data import groups_of
from cf2.methods.trained import Trained
from cf2.models.adapters import Call
from cf2.options import Edit, Key, Level, Masking, Output, Question, Reduce, Reverse, Spec, Valid, meanings
from cf2.results.explanations import Explanations
from cf2.results.names import Names
from cf2.runs.progress import heard, log, told
from cf2.runs.session import Kept, Progress, Session, plan, train

if TYPE_CHECKING:
    from torch import Tensor

# -- api -------------------------------------------------------------------------------------------------


def explain(
    model: torch.nn.Module,
    data: Data | HeteroData | Iterable[Data | HeteroData],
    nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
    *,
    pairs: Iterable[tuple[int, int]] | Tensor | None = None,
    method: str = "cf2",
    units: str | Sequence[str] = ("edges",),
    question: Question = "why",
    target: int | str | Sequence[int | str] | Mapping[Key, int | str] | Tensor | None = None,
    edits: str | Sequence[Edit] = ("remove",),
    candidates: Any = None,
    keep: Any = None,
    forbid: Any = None,
    groups: str | Sequence[int] | Mapping[str, Any] | Tensor | None = None,
    connected: bool = False,
    valid: Valid | Callable[[Data], bool] | None = None,
    alternatives: int = 1,
    robust: int = 0,
    costs: Mapping[Edit, float] | Sequence[tuple[Edit, float]] | str = (),
    one_hot: Sequence[Sequence[int]] | str | None = None,
    added_attributes: Mapping[str, Any] = MappingProxyType({}),
    atoms: Sequence[str] | None = None,
    search: bool = False,
    sizes: int | Mapping[Key, int] | Sequence[Any] | None = None,
    seed: int | None = None,
    output: Output = "auto",
    tolerance: float | None = None,
    level: Level = "auto",
    leave_out_pair: bool = True,
    node_type: str | None = None,
    edge_type: tuple[str, str, str] | None = None,
    reverse: Reverse = "auto",
    directed: bool | None = None,
    masking: Masking = "auto",
    device: str | torch.device | None = None,
    max_units: int | None = None,
    reduce: Reduce | None = None,
    call: Call | None = None,
    trained: Any = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    node_names: Sequence[Any] | Mapping[Any, Any] | None = None,
    feature_names: Sequence[str] | Mapping[Any, Any] | None = None,
    smiles: str | Sequence[str] | Mapping[int, str] | None = None,
    progress: Progress | bool | None = None,
    verbose: bool = False,
    **settings: Any,
) -> Explanations:
    """Explain predictions of a model: of nodes or pairs of nodes of one graph, or of graphs.

    Parameters
    ----------
    model : torch.nn.Module
        Any module of torch_geometric layers; it is used as it is and left as it was.
    data : Data or HeteroData, or a list, data set, Batch or DataLoader of them
        The graph whose nodes are explained, or the graphs that are; a DataLoader stands for its data set, in the order
        of that.
    nodes : int, slice, ids in a list, array or tensor, or a mask, optional
        The nodes to explain, in this order; for graphs, their positions, or all if none are given. A mask such as
        `data.test_mask` holds a bool for every node. A set is sorted; what is given twice is explained twice.
    pairs : pairs (u, v) in a list, an array or tensor of shape [n, 2] or [2, n], optional
        The pairs of nodes to explain, for a model that predicts links; edges of the graph or not.
    method : str
        The method by name; `cf2 methods` lists them.
    units : str or sequence of str
        What an explanation is made of: edges, features, node_features, columns, or several of them.
    question : {"why", "factual", "counterfactual"}
        What is asked. why: a set that is sufficient and necessary. factual: a sufficient one. counterfactual: one
        without which the model gives another answer.
    target : int, the name of a class, a sequence of these, or such classes by key, optional
        The class to explain instead of the predicted one, the same for all or one per key; of a counterfactual, the
        class to reach; the label of a multi-label model; the column of a regression with several.
    edits : {"remove", "add", "change"}, or several of them
        What a counterfactual may do: remove units, add edges, change features; several of them.
    candidates : pairs of nodes [n, 2], such pairs by key, "near", "target" or "far", optional
        Pairs that may be added as edges, such as 3:17,4:9; near: all inside of the receptive field; target: those
        with the explained node; far: these, also with nodes all over the graph; None: near, and if in vain far too.
    keep : pairs of nodes [n, 2], or such pairs by key, optional
        Edges, as pairs such as 3:17,4:9, that must not be removed.
    forbid : pairs of nodes [n, 2], or such pairs by key, optional
        Edges, as pairs such as 3:17,4:9, that must not be in the answer.
    groups : str, a number per column of `edge_index`, or pairs of nodes by name, optional
        Edges that go or stay together, as one unit: the attribute of the data that holds a number per edge.
    connected : bool
        The answer must be one connected piece; for a node, one that the node belongs to.
    valid : "molecule", or a function (Data) -> bool, optional
        Accept only edits with a valid result. molecule: one that RDKit can sanitise; needs `atoms`.
    alternatives : int
        How many different answers to look for per key, none a part of another.
    robust : int
        How many disturbed copies of the graph, with edges added or gone, the answer must pass its tests on as well.
    costs : numbers by sort of edit
        What an edit of each sort adds to the size of an answer, such as add=2,change=1.5; 1 if not given.
    one_hot : sequence of groups of columns, optional
        Ranges of feature columns of which each node has one, such as 0-13,14-20; None looks at the values.
    added_attributes : values by name
        What an added edge has in `edge_attr` and the like, by name; the most common value if not given.
    atoms : sequence of str, optional
        The element that each feature column stands for, such as C,N,O, for molecules.
    search : bool
        Search for a set that passes the tests, from the scores of a method that only ranks.
    sizes : int, sizes by key, or Explanations, optional
        How many units a method that only ranks chooses, the same for all or one per key, such as the sizes of the
        answers of another method; None: as its `k` or `threshold` says.
    seed : int, optional
        Draw a random start from this seed; None starts from a fixed sequence.
    output : {"auto", "logits", "log_probabilities", "probabilities", "multilabel", "regression"}
        What the model returns: logits, log_probabilities or probabilities of classes (auto looks at the values),
        multilabel (target= is the label) or regression. Where logits and probabilities of labels cannot be told apart,
        say "multilabel_logits" or "multilabel_probabilities".
    tolerance : float, optional
        Of a regression: the same answer is one within ± this; None: a tenth of the range of up to 64 predictions.
    level : {"auto", "node", "graph", "pair"}
        Whether one graph is explained by its nodes (node), as a whole (graph) or by pairs.
    leave_out_pair : bool
        Whether the edge between a pair that is explained is left out of the graph; if not, it is a unit.
    node_type : str, optional
        Of a HeteroData: the type of the nodes that are explained.
    edge_type : (str, str, str), optional
        Of a HeteroData: the type (source, relation, destination) of the pairs that are explained.
    reverse : {"auto", "none"} or mapping from edge types to edge types
        Of a HeteroData: auto makes one unit of an edge and its mirror image, where the edges of two types mirror each
        other exactly; none does not; a mapping such as user,buys,item=item,bought_by,user says for which types.
    directed : bool, optional
        Whether an edge and its reverse are two units; None looks whether every edge has a reverse.
    masking : {"auto", "messages"}
        Where soft masks act: on edge weights if the model takes any (auto), or always on messages.
    device : str or torch.device, optional
        The torch device to run on; None stays where the model is.
    max_units : int, optional
        The most units an instance may have; a larger one is refused or reduced.
    reduce : {"gradient"}, optional
        What to do with an instance over max_units: gradient lets only the units that matter most be chosen.
    call : callable, optional
        How the model is called, `call(model, batch)`: gets the model and a torch_geometric Data with everything that
        the data has for nodes and edges, and `batch`, `edge_label_index` or `index` for what is explained; returns one
        row per graph, pair or node.
    trained : optional
        What `cf2.fit` made, for methods that are trained first; for `truth`, the true edges by key.
    class_names : list of str, or names by number, optional
        What the classes are called, one name per column of the model's output.
    node_names : list of str, or names by id, optional
        What the nodes are called; of a HeteroData by node type; for graphs, such names by graph.
    feature_names : list of str, or names by column, optional
        What the columns of `x` are called; of a HeteroData by node type.
    smiles : str, list of str, or SMILES by key, optional
        The molecules that the graphs are, drawn as chemists do. None takes `data.smiles`, where the data has that.
    progress : callable or bool, optional
        Told of every n keys that are done, as `progress(n)`; True shows a bar, False none; None shows one at a prompt
        or in a notebook, for what takes more than two seconds.
    verbose : bool
        Whether to show on stderr what is logged to `logging.getLogger("cf2")`.
    **settings
        Settings of the method, by name.

    Returns
    -------
    Explanations
        One per key, in their order.

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
    given = dict(locals())
    chosen = {name: given[name] for name in meanings() if name in given and name != "target"}
    chosen |= {"groups": groups_of(groups, data), "valid": None if callable(valid) else valid}
    spec = Spec.make(**chosen)
    kept = data if isinstance(data, Kept) else Kept(model, data)
    names = Names(class_names, node_names, feature_names, smiles, spec.atoms)
    more: dict[str, Any] = {"pairs": pairs, "target": names.number(target), "trained": trained, "call": call}
    with heard(verbose):
        request, keys = plan(model, kept, nodes, spec, **more, options=_options(explain))
        request = replace(request, valid=valid if callable(valid) else None, class_names=names.classes())
        context = names.context(kept.graph_of(request), keys, kept.graph_count(request)) | request.context()
        log.info("Explaining %d of level %s by %s: %s", len(keys), request.targets.level, method, question)
        started = time.perf_counter()
        with told(progress, len(keys)) as tell, Session(request) as session:
            found = Explanations(tuple(session.explain(keys, tell)), context)
            kept.learn(session)
        statuses = ", ".join(f"{count} {status}" for status, count in Counter(e.status for e in found).items())
        log.info("Explained %d in %.1f s: %s", len(keys), time.perf_counter() - started, statuses or "nothing")
        return found


def fit(
    model: torch.nn.Module,
    data: Data | HeteroData | Iterable[Data | HeteroData],
    nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
    *,
    pairs: Iterable[tuple[int, int]] | Tensor | None = None,
    method: str,
    seed: int = 0,
    target: int | Sequence[int] | Mapping[Key, int] | Tensor | None = None,
    output: Output = "auto",
    tolerance: float | None = None,
    level: Level = "auto",
    leave_out_pair: bool = True,
    node_type: str | None = None,
    edge_type: tuple[str, str, str] | None = None,
    reverse: Reverse = "auto",
    directed: bool | None = None,
    masking: Masking = "auto",
    device: str | torch.device | None = None,
    call: Call | None = None,
    **settings: Any,
) -> Trained:
    """Train a method that is trained first, once, on these nodes or graphs.

    Parameters
    ----------
    model, data, nodes, pairs, target, output, tolerance, level, leave_out_pair, node_type, edge_type, reverse
        As in `cf2.explain`.
    directed, masking, device, call
        As in `cf2.explain`.
    method : str
        A method that needs training, such as ``"gem"`` or ``"pgexplainer"``.
    seed : int
        Decides the first weights and every draw.
    **settings
        Settings of the method, by name.

    Returns
    -------
    Trained
        Pass it to `cf2.explain` as `trained=`. `save(path)` keeps it, `cf2.load_trained(path)` brings it back.
    """
    spec = Spec.make(
        method=method,
        seed=seed,
        output=output,
        tolerance=tolerance,
        level=level,
        leave_out_pair=leave_out_pair,
        node_type=node_type,
        edge_type=edge_type,
        reverse=reverse,
        directed=directed,
        masking=masking,
        device=device,
        settings=settings,
    )
    request, keys = plan(model, data, nodes, spec, pairs=pairs, target=target, call=call, options=_options(fit))
    return train(request, keys)


def _options(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"model", "data", "settings"}


# -- explainer -------------------------------------------------------------------------------------------


class Explainer:
    """A model and its data, for more than one question: what `cf2.explain` finds out about them is kept between calls.

    The graph is checked and indexed once, and the model is measured once: how far it looks, and what it says of the
    whole graph. Where the weights of the model or the tensors of a graph have changed since, that is done again.

    Parameters
    ----------
    model, data
        As in `cf2.explain`.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> explainer = cf2.Explainer(GCN(3, 8, 2, 2), data)
    >>> [explainer.explain(nodes=[node])[0].key for node in (1, 2)]
    [1, 2]
    """

    def __init__(self, model: torch.nn.Module, data: Data | HeteroData | Iterable[Data | HeteroData]) -> None:
        self.model, self.data = model, data
        self._kept = Kept(model, data)

    def explain(
        self,
        nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
        *,
        pairs: Iterable[tuple[int, int]] | Tensor | None = None,
        method: str = "cf2",
        units: str | Sequence[str] = ("edges",),
        question: Question = "why",
        target: int | str | Sequence[int | str] | Mapping[Key, int | str] | Tensor | None = None,
        edits: str | Sequence[Edit] = ("remove",),
        candidates: Any = None,
        keep: Any = None,
        forbid: Any = None,
        groups: str | Sequence[int] | Mapping[str, Any] | Tensor | None = None,
        connected: bool = False,
        valid: Valid | Callable[[Data], bool] | None = None,
        alternatives: int = 1,
        robust: int = 0,
        costs: Mapping[Edit, float] | Sequence[tuple[Edit, float]] | str = (),
        one_hot: Sequence[Sequence[int]] | str | None = None,
        added_attributes: Mapping[str, Any] = MappingProxyType({}),
        atoms: Sequence[str] | None = None,
        search: bool = False,
        sizes: int | Mapping[Key, int] | Sequence[Any] | None = None,
        seed: int | None = None,
        output: Output = "auto",
        tolerance: float | None = None,
        level: Level = "auto",
        leave_out_pair: bool = True,
        node_type: str | None = None,
        edge_type: tuple[str, str, str] | None = None,
        reverse: Reverse = "auto",
        directed: bool | None = None,
        masking: Masking = "auto",
        device: str | torch.device | None = None,
        max_units: int | None = None,
        reduce: Reduce | None = None,
        call: Call | None = None,
        trained: Any = None,
        class_names: Sequence[str] | Mapping[int, str] | None = None,
        node_names: Sequence[Any] | Mapping[Any, Any] | None = None,
        feature_names: Sequence[str] | Mapping[Any, Any] | None = None,
        smiles: str | Sequence[str] | Mapping[int, str] | None = None,
        progress: Progress | bool | None = None,
        verbose: bool = False,
        **settings: Any,
    ) -> Explanations:
        """Explain predictions; the parameters are those of `cf2.explain`.

        Returns
        -------
        Explanations
            One per key, in their order.
        """
        given = dict(locals())
        del given["self"], given["settings"]
        return explain(self.model, self._kept, **given, **settings)
