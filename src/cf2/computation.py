"""From a model and a graph to instances whose predictions are checked to be the user's own.

How far a model looks is counted from its layers and then measured: a cut is right when the model says the same
on it as on the whole graph. Degree normalisation needs one hop more than there are layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from cf2.errors import CF2Error
from cf2.instances import Direction, Graph, Instance
from cf2.packing import chunks, pack
from cf2.predictor import Predictor

SAME = 1e-4  # outputs closer than this are one output, summed in another order
FULL_CHECK_EDGES = 2_000_000  # up to this many edges, every cut is compared with the whole graph
PROBES = 4
CHUNK = 8_000_000  # floats kept by one packed pass; about what two levels of cache and a little memory hold


class Computation:
    """Cuts and checks the computation graphs of one model on one graph."""

    def __init__(
        self, predictor: Predictor, graph: Graph, *, hops: int | None = None, full: Tensor | None = None
    ) -> None:
        self.predictor, self.graph = predictor, graph
        self.direction = direction(predictor)
        self._hops, self._full = hops, full

    @property
    def hops(self) -> int:
        """How far the model looks, measured once on a few nodes spread over the graph."""
        if self._hops is None:
            self._hops = self._measure()
        return self._hops

    @property
    def full(self) -> Tensor | None:
        """Probabilities on the whole graph [nodes, classes]; None where it is too big to compare cuts."""
        return None if self.graph.edge_index.size(1) > FULL_CHECK_EDGES else self._on_full_graph()

    def _measure(self) -> int:
        pointer = self.graph.index(self.direction)[0]
        busy = torch.from_numpy(pointer).diff().nonzero().flatten()
        layers = self.predictor.layers
        if not len(busy):
            return len(layers) + 1
        probes = sorted(set(busy[torch.linspace(0, len(busy) - 1, PROBES).long()].tolist()))
        count = self.predictor.propagations(pack([self.cut(probes[0], 1)])) or 1
        start = count + any(isinstance(layer, GCNConv) and layer.normalize for layer in layers)
        for hops in range(start, start + 3):
            near, far = (self._outputs([self.cut(n, h) for n in probes]) for h in (hops, hops + 1))
            if torch.allclose(near, far, atol=SAME):
                return hops
        raise CF2Error(
            f"Expected the model's prediction to depend on the {start + 2} hops around a node",
            got="a model that looks further than its message passing layers",
            do="Explain it as a graph classifier, or remove layers that mix all nodes.",
        )

    def cut(self, node: int, hops: int) -> Instance:
        return self.graph.cut(node, hops, self.direction)

    def instances(self, nodes: Sequence[int]) -> list[Instance]:
        """The computation graphs of `nodes`, each one giving the prediction that the whole graph gives."""
        found = [self.cut(node, self.hops) for node in nodes]
        if self.graph.edge_index.size(1) > FULL_CHECK_EDGES:
            return found  # `hops` was measured; a pass over a graph of this size would dwarf the explanation
        truth = self._on_full_graph()[torch.tensor(nodes)]
        for wider in (0, 1, 2):
            gap = (self._outputs(found) - truth).abs().amax(1)
            off = (gap > SAME).nonzero().flatten().tolist()
            if not off:
                return found
            for position in off:
                found[position] = self.cut(nodes[position], self.hops + wider + 1)
        raise CF2Error(
            f"Expected node {nodes[off[0]]} to get the same prediction on its computation graph as on the whole graph",
            got=f"probabilities that differ by {float(gap[off[0]]):.2g}",
            do="Does the model mix all nodes (a global pooling or normalisation)? Such a model has no smaller graph.",
        )

    def _on_full_graph(self) -> Tensor:
        if self._full is None:
            whole = pack([self.graph.whole(0)])
            every = torch.arange(self.graph.num_nodes)
            self._full = self.predictor.predict_rows(whole, every).cpu()
        return self._full

    def _outputs(self, instances: Sequence[Instance]) -> Tensor:
        return predictions(self.predictor, instances)


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


def predictions(predictor: Predictor, instances: Sequence[Instance]) -> Tensor:
    """Probabilities [instances, classes] on the graphs as they are."""
    parts = [predictor.predict(pack(part)).cpu() for part in instance_chunks(predictor, instances)]
    return torch.cat(parts)
