"""`cf2.explain` and `cf2.fit`, the two functions most people need, and `cf2.Explainer` for many questions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from torch_geometric.data import Data

from cf2.core.data import graphs_of
from cf2.core.graph import Graph
from cf2.core.modules import module_of
from cf2.core.targets import GraphTargets, NodeTargets, Targets
from cf2.errors import CF2Error, require
from cf2.methods import registry
from cf2.methods.needs import check_needs
from cf2.methods.trained import Trained
from cf2.results.explanations import Explanations
from cf2.runs.session import Measured, Progress, Request, Session, check_names, train
from cf2.spec import Key, Level, Masking, Output, Question, Reduce, Spec

if TYPE_CHECKING:
    from torch import Tensor


def explain(
    model: torch.nn.Module,
    data: Data | Iterable[Data],
    nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
    *,
    method: str = "cf2",
    units: str | Sequence[str] = ("edges",),
    question: Question = "why",
    target: int | Sequence[int] | Mapping[Key, int] | Tensor | None = None,
    search: bool = False,
    seed: int | None = None,
    output: Output = "auto",
    level: Level = "auto",
    directed: bool | None = None,
    masking: Masking = "auto",
    device: str | torch.device | None = None,
    max_units: int | None = None,
    reduce: Reduce | None = None,
    trained: Any = None,
    progress: Progress | bool | None = None,
    **settings: Any,
) -> Explanations:
    """Explain predictions of a model: of nodes of one graph, or of graphs.

    Parameters
    ----------
    model : torch.nn.Module
        Any module of torch_geometric layers; it is used as it is and left as it was.
    data : Data, or a list, data set, Batch or DataLoader of Data
        The graph whose nodes are explained, or the graphs that are; a DataLoader stands for its data set, in the order
        of that.
    nodes : int, slice, ids in a list, array or tensor, or a mask, optional
        The nodes to explain, in this order; for graphs, their positions, or all if none are given. A mask such as
        `data.test_mask` holds a bool for every node. A set is sorted; what is given twice is explained twice.
    method : str
        The method by name; `cf2 methods` lists them.
    units : str or sequence of str
        What an explanation is made of: edges, features, node_features, columns, or several of them.
    question : {"why", "factual", "counterfactual"}
        What is asked. why: a set that is sufficient and necessary. factual: a sufficient one. counterfactual: one
        without which the model gives another answer.
    target : int, sequence of int, or classes by key, optional
        The class to explain instead of the predicted one, the same for all or one per key.
    search : bool
        Search for a set that passes the tests, from the scores of a method that only ranks.
    seed : int, optional
        Draw a random start from this seed; None starts from a fixed sequence.
    output : {"auto", "logits", "log_probabilities", "probabilities"}
        What the model returns: logits, log_probabilities or probabilities; auto looks at the values.
    level : {"auto", "node", "graph"}
        Whether one graph is explained by its nodes (node) or as a whole (graph).
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
    trained : optional
        What `cf2.fit` made, for methods that are trained first; for `truth`, the true edges by key.
    progress : callable or bool, optional
        Told of every n keys that are done, as `progress(n)`; True shows a bar on stderr.
    **settings
        Settings of the method, by name.

    Returns
    -------
    Explanations
        One per key, in their order.

    Examples
    --------
    >>> import cf2, torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GCN
    >>> _ = torch.manual_seed(0)
    >>> data = Data(x=torch.randn(4, 3), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    >>> found = cf2.explain(GCN(3, 8, 2, 2), data, nodes=[1])
    >>> len(found), found[0].key
    (1, 1)
    """
    spec = Spec.make(
        method=method,
        units=units,
        question=question,
        search=search,
        seed=seed,
        output=output,
        level=level,
        directed=directed,
        masking=masking,
        device=device,
        max_units=max_units,
        reduce=reduce,
        settings=settings,
    )
    kept = data if isinstance(data, Explainer) else Explainer(model, data)
    request, keys = plan(model, kept, nodes, spec, target=target, trained=trained)
    with _told(progress, len(keys)) as tell, Session(request) as session:
        found = Explanations(tuple(session.explain(keys, tell)), request.context())
        kept.learn(session)
        return found


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

    def __init__(self, model: torch.nn.Module, data: Data | Iterable[Data]) -> None:
        self.model, self.data = model, data
        self._targets: dict[Any, tuple[Any, Targets]] = {}
        self._measured: dict[Any, tuple[Any, Measured]] = {}

    def explain(
        self, nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None, **options: Any
    ) -> Explanations:
        """Explain predictions, with every option of `cf2.explain`.

        Parameters
        ----------
        nodes
            The nodes to explain, as in `cf2.explain`.
        **options
            Options of `cf2.explain`, and settings of the method, by name.

        Returns
        -------
        Explanations
            One per key, in their order.
        """
        return explain(self.model, self, nodes, **options)

    def targets(self, nodes: Any, spec: Spec) -> Targets:
        """What can be explained of the data, as it is now."""
        kind, state = (spec.level, spec.directed, nodes is None), self._state()
        if kind not in self._targets or self._targets[kind][0] != state:
            self._targets[kind] = (state, make_targets(self.data, nodes, spec))
        return self._targets[kind][1]

    def measured(self, request: Request) -> Measured | None:
        """What is known about the model from an earlier call, if that still holds."""
        state, known = self._measured.get(self._way(request), (None, None))
        return known if state == self._state() else None

    def learn(self, session: Session) -> None:
        """Keep what a session has found out about the model."""
        known = session.measured
        if known is not None:
            self._measured[self._way(session.request)] = (self._state(), known)

    @staticmethod
    def _way(request: Request) -> tuple[Any, ...]:
        spec = request.spec
        return id(request.targets), spec.output, spec.masking, spec.device

    def _state(self) -> tuple[Any, ...]:
        """What is other when the model or a single graph has changed: torch counts writes to a tensor."""
        module = module_of(self.model)
        tensors = [*module.parameters(), *module.buffers()]
        if isinstance(self.data, Data):
            tensors += [value for _, value in self.data if isinstance(value, torch.Tensor)]
        return tuple((id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors)


def fit(
    model: torch.nn.Module,
    data: Data | Iterable[Data],
    nodes: int | slice | Iterable[int] | Iterable[bool] | Tensor | None = None,
    *,
    method: str,
    seed: int = 0,
    target: int | Sequence[int] | Mapping[Key, int] | Tensor | None = None,
    output: Output = "auto",
    level: Level = "auto",
    directed: bool | None = None,
    masking: Masking = "auto",
    device: str | torch.device | None = None,
    **settings: Any,
) -> Trained:
    """Train a method that is trained first, once, on these nodes or graphs.

    Parameters
    ----------
    model, data, nodes, target, output, level, directed, masking, device
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
        level=level,
        directed=directed,
        masking=masking,
        device=device,
        settings=settings,
    )
    request, keys = plan(model, data, nodes, spec, target=target, function=fit)
    return train(request, keys)


def plan(
    model: Any,
    data: Any,
    nodes: Any,
    spec: Spec,
    *,
    target: Any = None,
    trained: Any = None,
    function: Callable[..., Any] = explain,
) -> tuple[Request, list[Key]]:
    """The request that `explain` would carry out, and the keys; `target` is a class, or one per key in their order.

    `function` is the one whose options are named where one is misspelt.
    """
    check_names(spec, set(inspect.signature(function).parameters) - {"model", "data", "settings"})
    kept = data if isinstance(data, Explainer) else None
    module, targets = module_of(model), make_targets(data, nodes, spec) if kept is None else kept.targets(nodes, spec)
    keys = targets.check(nodes)
    if target is not None:
        spec = replace(spec, target=_classes(target, keys, len(targets)))
    needed = check_needs(registry.get(spec.method), trained)
    request = Request(module, targets, spec, needed, targets.labels(keys))
    return request if kept is None else replace(request, measured=kept.measured(request)), keys


def _classes(given: Any, keys: Sequence[Key], count: int) -> Any:
    """A class for all keys, or pairs of a key and its class, which the Spec checks."""
    if isinstance(given, Mapping):
        return given
    try:
        listed = given.tolist() if hasattr(given, "tolist") else list(given) if isinstance(given, range) else given
    except Exception as error:  # of a tensor without values, or a sparse one
        got = f"an object of type {type(given).__name__}"
        raise CF2Error("Expected `target` to be a class, or one for each key", got=got) from error
    if not isinstance(listed, list | tuple):
        return listed
    require(
        len(listed) == len(keys),
        f"Expected one class in `target` per key, {len(keys)}",
        got=len(listed),
        do="Pass target[nodes], the classes of what is explained." if len(listed) == count else "",
    )
    return tuple(zip(keys, listed))


@contextmanager
def _told(given: Any, total: int) -> Iterator[Progress | None]:
    """Whom to tell of keys that are done: the user's function, a bar on stderr, or nobody."""
    if given is None or given is False:
        yield None
    elif given is True:
        columns = (TextColumn("explained"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with ProgressBar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("explained", total=total)
            yield lambda done: bar.advance(task, done)
    else:
        require(callable(given), "Expected `progress` to be a function, True or False", got=repr(given)[:80])
        yield given


def make_targets(data: Any, nodes: Any, spec: Spec) -> Targets:
    """What can be explained of the user's data: the nodes of one graph, or graphs."""
    graphs = graphs_of(data, spec.level, positions=nodes is not None)
    if not isinstance(graphs, Data):
        return GraphTargets(graphs, directed=spec.directed)
    if spec.level == "graph":
        return GraphTargets([graphs], directed=spec.directed)
    if nodes is None:
        raise CF2Error(
            "Expected `nodes` beside a single graph",
            got="none",
            do='Pass nodes=[…] to explain nodes, or level="graph" to explain the graph as a whole.',
        )
    return NodeTargets(Graph(graphs, directed=spec.directed), getattr(graphs, "y", None))
