"""The smallest graph that gives the very same output, for every target; each one is checked.

How far a model looks is counted from its layers and then measured: a cut is right when the model says the same
on it as on the whole graph, both as they are and with a part of their edges gone. A layer that normalises by degree
needs one hop more than there are layers; so does every layer that is not known to do without.

A model may hold something for every node of this very graph, such as a trained embedding of each. It cannot be run on
a part of the nodes; its receptive field has all nodes, and the edges that are near.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from cf2.errors import CF2Error
from cf2.graphs.graph import Direction, Graph, Instance, Role, with_edges
from cf2.graphs.targets import Targets, Whole
from cf2.models.predictor import Predictor
from cf2.options import Key
from cf2.units.edits import Editing, elements
from cf2.units.kinds import InstanceUnits
from cf2.units.packs import Pack, chunks, pack

# Layers whose message along an edge is made from its ends' states alone: no degree of the node it comes from.
_STATES_ONLY = """AGNN CG Edge FiLM FeaSt GAT GATv2 GEN GIN GINE GMM GatedGraph Graph HGT MF NN PNA RGAT RGCN
    ResGatedGraph SAGE Spline Transformer Simple LE Signed SuperGAT PointNet General"""
STATES_ONLY = frozenset(getattr(pyg, f"{name}Conv") for name in _STATES_ONLY.split())
# These divide by the edges along which they pass messages; others may do so by those of the other direction.
_SAME_WAY = (pyg.ARMAConv, pyg.EGConv, pyg.FAConv, pyg.GCNConv, pyg.GCN2Conv, pyg.LGConv, pyg.SGConv, pyg.TAGConv)
FULL_CHECK_EDGES = 2_000_000  # up to this many edges, every cut is compared with the whole graph
MANY_CHECKS_EDGES = 100_000  # the same where each key has a whole graph of its own, as a pair without its edge
PROBES = 4
PLAIN_HOPS = 6  # the farthest that is tried of a model without message passing layers, before all nodes are kept
MAX_PLAIN_FLOATS = 2_000_000  # of one run on a whole graph: up to this size every answer is judged there once more
MAX_FLOATS = 8_000_000  # kept by one packed pass; about what two levels of cache and a little memory hold

Packed = tuple[list[Instance], Pack, Tensor]  # instances, packed, and the probabilities of each


@dataclass(frozen=True, eq=False)
class Reach:
    """How far a model looks, and its outputs on the whole graph; measured once for all workers of a request."""

    hops: int = 0
    direction: Direction = "in"
    full: Tensor | None = None  # [keys, width], None where these are too many or each target has its own graph
    compare: bool = False  # whether each cut is compared with the whole graph that its key is predicted on
    whole: bool = False  # nothing can be cut: the model mixes all nodes
    all_nodes: bool = False  # edges can be cut, and nodes cannot
    knows_nodes: bool = False  # nor can they be removed: the model holds something for each of them


class ReceptiveField:
    """Cuts and checks the receptive fields of the targets of one model."""

    def __init__(
        self, predictor: Predictor, targets: Targets, reach: Reach | None = None, editing: Editing | None = None
    ) -> None:
        self.predictor, self.targets, self.editing = predictor, targets, editing
        self._reach = reach if reach is None else self._keep(reach)
        self._wholes: WeakKeyDictionary[Instance, list[tuple[Whole, Tensor, Tensor]]] = WeakKeyDictionary()

    def _keep(self, reach: Reach) -> Reach:
        """Keep what was measured, and let trials of the predictor know how far the model looks."""
        self._reach = reach
        if reach.hops:
            layers = self.predictor.layers
            known = bool(layers) and all(_reads_no_degree(layer) or type(layer) in _SAME_WAY for layer in layers)
            self.predictor.sight = (reach.hops, reach.direction if known else "both")
        return reach

    @property
    def reach(self) -> Reach:
        """What is measured at the first use, on a few keys spread over the graph."""
        graph = self.targets.graph
        return self._reach or self._keep(Reach() if graph is None else self._measured(graph))

    def _measured(self, graph: Graph) -> Reach:
        try:
            reach = self._measure(graph)
        except CF2Error:  # it may need all nodes to run; if it runs on no graph at all, that is said of the whole one
            reach = None
        if reach is None or (reach.whole and self.predictor.knows_nodes(self._one_graph(self._any_keys()))):
            return self._measure_on_all_nodes()
        return reach

    def _any_keys(self) -> Sequence[Key]:
        """A few keys to measure a model by that is run on all nodes."""
        own = direction(self.predictor)
        probes = self.targets.probes(own, PROBES) or self.targets.probes("both", PROBES)
        return probes or [0 if self.targets.level == "node" else (0, 0)]

    def _one_graph(self, keys: Sequence[Key]) -> Pack:
        """The whole graph of the first of some keys, as a pack that reads this one."""
        first = next(iter(self.targets.wholes(keys)))
        packed = pack([first.instance], tables=[_no_units(first.instance)], takes=self.predictor.adapter.takes)
        return replace(packed, targets=first.targets[:1], keys=first.targets[:1])

    def instances(self, keys: Sequence[Key]) -> list[Instance]:
        """The receptive fields of the keys, as far as the model was measured to look."""
        return [self._cut(key) for key in keys]

    def _cut(self, key: Key, wider: int = 0) -> Instance:
        if self.reach.whole:
            (whole,) = self.targets.wholes([key])
            near = replace(whole.instance, key=key, targets=tuple(whole.targets[0].tolist()))
        else:
            near = self._near(key, self.reach.hops + wider, self.reach.direction, self.reach.all_nodes)
        return near if self.editing is None else self.with_candidates(near, self.editing, wider)

    def _near(self, key: Key, hops: int, way: Direction, all_nodes: bool = False) -> Instance:
        """What is up to `hops` from the target: nodes and edges, or edges alone, with all nodes of the graph."""
        cut = self.targets.instance(key, hops, way)
        if not all_nodes:
            return cut
        (whole,) = self.targets.wholes([key])
        edges = _columns(whole.instance, cut)[1].sort().values
        return replace(with_edges(whole.instance, edges), key=key, targets=tuple(whole.targets[0].tolist()))

    def with_candidates(self, near: Instance, editing: Editing, wider: int = 0) -> Instance:
        """A receptive field with what may be added or changed in it, and what an added edge brings near."""
        hops, way = max(self.reach.hops + wider - 1, 1), self.reach.direction
        if self.reach.whole:
            return editing.prepared(near, lambda nodes: near)
        return editing.prepared(near, lambda nodes: self.targets.instance(near.key, hops, way, nodes.tolist()))

    def packed(self, instances: Sequence[Instance], make: Callable[[Sequence[Instance]], Pack]) -> Iterator[Packed]:
        """Instances in packs of a bounded size, each with the prediction that the whole graph gives as well."""
        for part in instance_chunks(self.predictor, instances):
            yield self._checked(list(part), make)

    def _checked(self, part: list[Instance], make: Callable[[Sequence[Instance]], Pack]) -> Packed:
        """The pack and its probabilities; an instance on which the model says something else is cut wider."""
        for wider in (1, 2, 3):
            packed = make(part)
            rows = self.predictor.rows(packed)
            near, far = rows.double().cpu(), self._far([instance.key for instance in part])
            off = [] if far is None else self.predictor.differ(near, far).nonzero().flatten().tolist()
            if far is None or not off:
                return part, packed, self.predictor.probabilities(rows)
            gap = float((near - far)[off[0]].abs().max())
            for position in off:
                part[position] = self._cut(part[position].key, wider)
            self.predictor.sight = (None, "both")  # further than measured, so nothing is known
        raise CF2Error(
            f"Expected {self.targets.level} {part[off[0]].key} to get the same prediction on its receptive field as on "
            "the whole graph",
            got=f"outputs that differ by {gap:.2g}",
            do="Does the model mix all nodes (global pooling, normalisation)? Then it has no smaller receptive field.",
        )

    def runs_plainly(self, instance: Instance) -> bool:
        """Whether the whole graph of an instance is small enough to be run once more for every answer."""
        graph = self.targets.graph
        whole: Graph | Instance = instance if graph is None else graph
        cost = len(whole.x) * whole.x.size(1) + self.predictor.cost(len(whole.x), whole.edge_index.size(1))
        return bool(cost <= MAX_PLAIN_FLOATS)

    def plain(self, instance: Instance, table: InstanceUnits, like: Pack, as_it_was: Tensor) -> Tensor:
        """What the model returns for the user's whole graph, alone, where units [u, bool] are as they were: [1, width].

        Nothing of packs or cuts is used: the edited graph is built and handed over. `like` is a pack of such instances,
        by which it is known what the model takes. Of a graph without nodes it says nothing, NaN.
        """
        x, columns, nodes = elements(instance, table, as_it_was)
        edge_index, place = instance.edge_index[:, columns], torch.zeros((1, 0), dtype=torch.long)
        extras: dict[str, Tensor] = {n: instance.extras[n][1] for n in like.extras}
        of_edges = {n: value[columns] for n, value in extras.items() if like.extras[n][0] == "edge"}
        for (whole, targets, _), known, at in self._whole(instance):
            place = targets
            ids, own = instance.node_ids, whole.extras
            new = columns & (torch.zeros_like(columns) if instance.role is None else instance.role == Role.CANDIDATE)
            stay = torch.ones(whole.edge_index.size(1), dtype=torch.bool).index_copy_(0, at, columns[known])
            edge_index = torch.cat([whole.edge_index[:, stay], ids[instance.edge_index[:, new]]], 1)
            of_edges = {n: torch.cat([own[n][1][stay], extras[n][new]]) for n in of_edges}
            extras = {n: own[n][1] for n in extras}
            x = whole.x if x is instance.x else whole.x.index_copy(0, ids, x)
            nodes = torch.ones(len(x), dtype=torch.bool).index_copy(0, ids, nodes)
        extras |= of_edges
        if not bool(nodes.all()):
            both = nodes[edge_index].all(0)  # an edge from outside of the cut, or an added one, may end at a gone node
            number = nodes.long().cumsum(0) - 1
            rows = {"node": nodes, "edge": both}
            kinds = {n: like.extras[n][0] for n in extras}
            extras = {n: value[rows[kinds[n]]] if kinds[n] in rows else value for n, value in extras.items()}
            x, edge_index, place = x[nodes], number[edge_index[:, both]], number[place]
        return self.predictor.plain(x, edge_index, extras, place)

    def _whole(self, instance: Instance) -> list[tuple[Whole, Tensor, Tensor]]:
        """The whole graph of a cut, if it has one, with columns of the cut and the same columns of the whole."""
        if instance not in self._wholes:
            wholes = self.targets.wholes([instance.key])
            self._wholes[instance] = [(whole, *_columns(whole.instance, instance)) for whole in wholes]
        return self._wholes[instance]

    def _far(self, keys: Sequence[Key]) -> Tensor | None:
        """What the model says of the keys on the whole graph, where that is known or can be."""
        if self.reach.full is not None:
            return self.reach.full[torch.tensor(keys)]
        return self._whole_outputs(list(self.targets.wholes(keys))) if self.reach.compare else None

    def _measure(self, graph: Graph) -> Reach | None:
        """How many hops around a node its output depends on: counted from the layers, then tried; None: more than that.

        Of a layer that reads degrees it is not known which: on a directed graph the edges out of a node may count too.
        """
        own = direction(self.predictor)
        degrees = not all(map(_reads_no_degree, self.predictor.layers))
        directions: list[Direction] = [own, "both"] if graph.directed and own != "both" else [own]
        plain = not self.predictor.layers  # nothing says how far it looks, so it is measured further and more often
        count = PROBES * (4 if plain else 1)
        # A model that undoes directions reads edges even of nodes that none leads to, as in a bipartite typed graph.
        probes = self.targets.probes(own, count) or self.targets.probes(directions[-1], count)
        small = graph.edge_index.size(1) <= FULL_CHECK_EDGES
        if not probes:  # no node has an edge; a model may look at all nodes all the same
            self._outputs([0 if self.targets.level == "node" else (0, 0)], 1, own)
            return Reach(len(self.predictor.layers) + 1, own, compare=small, whole=self.predictor.alone)
        first = pack([self.targets.instance(probes[0], 1, own)], takes=self.predictor.adapter.takes)
        start = (self.predictor.propagations(first) or 1) + degrees
        full: Tensor | None = None
        far: Tensor | None = None
        for way in directions:
            for hops in range(start, start + (PLAIN_HOPS if plain else 3)):
                near = self._outputs(probes, hops, way)
                if self.predictor.alone:
                    return Reach(whole=True)
                if not small:
                    far = self._outputs(probes, hops + 1, directions[-1])
                elif far is None:
                    wholes = list(self.targets.wholes(None))
                    full = self._whole_outputs(wholes) if wholes else None
                    far = self._whole_and_thinned(probes, full)
                if not bool(self.predictor.differ(near, far).any()):
                    return Reach(hops, way, full, small and graph.edge_index.size(1) <= MANY_CHECKS_EDGES)
        return None

    def _measure_on_all_nodes(self) -> Reach:
        """The same for a model that does not give the same on a part of the nodes, or cannot be run on one."""
        keys = self._any_keys()
        packed = self._one_graph(keys)
        self.predictor.find_out_on_one_graph(packed)
        knows = self.predictor.knows_nodes(packed)
        full, farthest = self._whole_and_thinned(keys, None), self.predictor.propagations(packed) or 1
        for hops in range(farthest, farthest + (PLAIN_HOPS if not self.predictor.layers else 3)):
            near = self._outputs(keys, hops, "both", all_nodes=True)
            if not bool(self.predictor.differ(near, full).any()):
                return Reach(hops, "both", compare=True, all_nodes=True, knows_nodes=knows)
        return Reach(whole=True, knows_nodes=knows)

    def _whole_and_thinned(self, keys: Sequence[Key], full: Tensor | None) -> Tensor:
        """What the model says of keys on their whole graphs, as they are and then with a part of the edges gone."""
        wholes = list(self.targets.wholes(keys))
        near = self._whole_outputs(wholes) if full is None else full[torch.tensor(keys)]
        thin = [whole._replace(instance=self._thinned(whole.instance)) for whole in wholes]
        return torch.cat([near, self._whole_outputs(thin)])

    def _outputs(self, keys: Sequence[Key], hops: int, way: Direction, all_nodes: bool = False) -> Tensor:
        """What the model says on cuts of some keys, as they are and then with a part of their edges gone."""
        cuts, takes = [self._near(key, hops, way, all_nodes) for key in keys], self.predictor.adapter.takes
        parts = instance_chunks(self.predictor, [*cuts, *map(self._thinned, cuts)])
        return torch.cat([self.predictor.rows(pack(part, takes=takes)) for part in parts]).double().cpu()

    def _thinned(self, instance: Instance) -> Instance:
        """The instance without about a third of its edges, the same ones whatever else was cut out with them."""
        ends = instance.node_ids[instance.edge_index]
        # Of a directed graph, one direction of an edge goes alone: a model that undoes directions shows itself.
        graph = self.targets.graph
        low, high = ends if graph is not None and graph.directed else ends.sort(0).values
        stay = ((low * 2_654_435_761 + high * 40_503) % 1_000_003 % 3 > 0).nonzero().flatten()
        return with_edges(instance, stay)

    def _whole_outputs(self, wholes: Sequence[Whole]) -> Tensor:
        """What the model says of keys on whole graphs, in the order of the keys."""
        rows = []
        for whole in wholes:
            packed = pack([whole.instance], tables=[_no_units(whole.instance)], takes=self.predictor.adapter.takes)
            rows.append(self.predictor.rows_of_many(packed, whole.targets))
        order = torch.tensor([position for whole in wholes for position in whole.positions]).argsort()
        return torch.cat(rows).double().cpu()[order]


def _columns(whole: Instance, cut: Instance) -> tuple[Tensor, Tensor]:
    """The columns of a cut that are there at first, and the same columns of the whole graph."""
    known = torch.arange(cut.edge_index.size(1)) if cut.role is None else (cut.role != Role.CANDIDATE).nonzero()[:, 0]
    ends, high = cut.node_ids[cut.edge_index[:, known]], len(whole.x)
    code, every = ends[0] * high + ends[1], whole.edge_index[0] * high + whole.edge_index[1]
    if whole.types is not None:  # parallel edges of several types are told apart
        kinds = len(whole.types.edges)
        code = code * kinds + cut.extras["edge_type"][1][known]
        every = every * kinds + whole.extras["edge_type"][1]
    # A cut has all columns between two nodes or none, in the order of the whole graph.
    inside = torch.isin(every, code).nonzero().flatten()
    return known[code.argsort(stable=True)], inside[every[inside].argsort(stable=True)]


def _reads_no_degree(layer: torch.nn.Module) -> bool:
    """By its type, or because it says so: `normalize=False` is how torch_geometric's layers do."""
    return type(layer) in STATES_ONLY or getattr(layer, "normalize", True) is False


def _no_units(instance: Instance) -> InstanceUnits:
    """A table without units, of a graph that is only predicted: to list those of 10⁶ edges takes longer than that."""
    none, pairs = torch.zeros(0, dtype=torch.long), torch.zeros((2, 0), dtype=torch.long)
    free = torch.full((instance.edge_index.size(1),), -1)
    return InstanceUnits((), none, pairs.t(), pairs.t(), (free, pairs), (none, pairs))


def direction(predictor: Predictor) -> Direction:
    """Along which edges the model's messages reach a node."""
    flows = {layer.flow for layer in predictor.layers}
    if flows == {"target_to_source"}:
        return "out"
    return "in" if len(flows) <= 1 else "both"


def instance_chunks(
    predictor: Predictor, instances: Sequence[Instance], budget: int = MAX_FLOATS
) -> Iterator[Sequence[Instance]]:
    """Consecutive instances that one packed pass can hold."""
    costs = [predictor.cost(i.x.size(0), i.edge_index.size(1)) for i in instances]
    for part in chunks(costs, budget):
        yield instances[part]
