"""The smallest graph that gives the very same output, for every target; each one is checked.

How far a model looks is counted from its layers and then measured: a cut is right when the model says the same
on it as on the whole graph. Degree normalisation needs one hop more than there are layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from cf2.core.graph import Direction, Graph, Instance
from cf2.core.packing import Pack, chunks, pack
from cf2.core.predictor import Predictor
from cf2.core.targets import Targets
from cf2.errors import CF2Error
from cf2.spec import Key

SAME = 1e-4  # outputs closer than this are one output, summed in another order
FULL_CHECK_EDGES = 2_000_000  # up to this many edges, every cut is compared with the whole graph
PROBES = 4
CHUNK = 8_000_000  # floats kept by one packed pass; about what two levels of cache and a little memory hold

Packed = tuple[list[Instance], Pack, Tensor]  # instances, packed, and the probabilities of each


@dataclass(frozen=True, eq=False)
class Reach:
    """How far a model looks, and its outputs on the whole graph; measured once for all workers of a request."""

    hops: int = 0
    full: Tensor | None = None  # [keys, classes], None where the graph is too large or each target has its own


class ReceptiveField:
    """Cuts and checks the receptive fields of the targets of one model."""

    def __init__(self, predictor: Predictor, targets: Targets, reach: Reach | None = None) -> None:
        self.predictor, self.targets = predictor, targets
        self.direction = direction(predictor)
        self._reach = reach

    @property
    def reach(self) -> Reach:
        """What is measured at the first use: on a few keys spread over the graph, then on the whole of it."""
        if self._reach is None:
            graph = self.targets.graph
            self._reach = Reach() if graph is None else Reach(self._measure(graph), self._full(graph))
        return self._reach

    def instances(self, keys: Sequence[Key]) -> list[Instance]:
        """The receptive fields of the keys, as far as the model was measured to look."""
        return [self.targets.instance(key, self.reach.hops, self.direction) for key in keys]

    def packed(self, instances: Sequence[Instance], make: Callable[[Sequence[Instance]], Pack]) -> Iterator[Packed]:
        """Instances in packs of a bounded size, each with the prediction that the whole graph gives as well."""
        for part in instance_chunks(self.predictor, instances):
            yield self._checked(list(part), make)

    def _checked(self, part: list[Instance], make: Callable[[Sequence[Instance]], Pack]) -> Packed:
        """The pack and its probabilities; an instance on which the model says something else is cut wider."""
        for wider in (1, 2, 3):
            made = make(part)
            P = self.predictor.predict(made)
            if self.reach.full is None:
                return part, made, P
            gap = (P.cpu() - self.reach.full[torch.tensor([i.key for i in part])]).abs().amax(1)
            off = (gap > SAME).nonzero().flatten().tolist()
            if not off:
                return part, made, P
            for place in off:
                part[place] = self.targets.instance(part[place].key, self.reach.hops + wider, self.direction)
        raise CF2Error(
            f"Expected {self.targets.level} {part[off[0]].key} to get the same prediction on its receptive field as on "
            "the whole graph",
            got=f"probabilities that differ by {float(gap[off[0]]):.2g}",
            do="Does the model mix all nodes (a global pooling or normalisation)? Such a model has no smaller graph.",
        )

    def _measure(self, graph: Graph) -> int:
        pointer = graph.index(self.direction)[0]
        busy = torch.from_numpy(pointer).diff().nonzero().flatten()
        layers = self.predictor.layers
        if not len(busy):
            return len(layers) + 1
        probes = sorted(set(busy[torch.linspace(0, len(busy) - 1, PROBES).long()].tolist()))
        first = pack([self.targets.instance(probes[0], 1, self.direction)], takes=self.predictor.adapter.takes)
        count = self.predictor.propagations(first) or 1
        start = count + any(isinstance(layer, GCNConv) and layer.normalize for layer in layers)
        for hops in range(start, start + 3):
            near, far = (self._outputs(probes, h) for h in (hops, hops + 1))
            if torch.allclose(near, far, atol=SAME):
                return hops
        raise CF2Error(
            f"Expected the model's prediction to depend on the {start + 2} hops around a node",
            got="a model that looks further than its message passing layers",
            do="Explain it as a graph classifier, or remove layers that mix all nodes.",
        )

    def _outputs(self, keys: Sequence[Key], hops: int) -> Tensor:
        instances = [self.targets.instance(key, hops, self.direction) for key in keys]
        parts = instance_chunks(self.predictor, instances)
        takes = self.predictor.adapter.takes
        return torch.cat([self.predictor.predict(pack(part, takes=takes)).cpu() for part in parts])

    def _full(self, graph: Graph) -> Tensor | None:
        if graph.edge_index.size(1) > FULL_CHECK_EDGES:
            return None  # `hops` was measured; a pass over a graph of this size would dwarf the explanation
        whole = pack([graph.whole(0)], takes=self.predictor.adapter.takes)
        return self.predictor.predict_nodes(whole, torch.arange(graph.num_nodes)).cpu()


def direction(predictor: Predictor) -> Direction:
    """Along which edges the model's messages reach a node."""
    flows = {layer.flow for layer in predictor.layers}
    if flows == {"target_to_source"}:
        return "out"
    return "in" if len(flows) <= 1 else "both"


def instance_chunks(
    predictor: Predictor, instances: Sequence[Instance], budget: int = CHUNK
) -> Iterator[Sequence[Instance]]:
    """Consecutive instances that one packed pass can hold."""
    costs = [predictor.cost(i.x.size(0), i.edge_index.size(1)) for i in instances]
    for part in chunks(costs, budget):
        yield instances[part]
