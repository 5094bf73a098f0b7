"""Random models, graphs and questions: every claim of every answer is tried again by `cf2.check`, and none is false.

The default is a small, fixed sample. `CF2_CLAIMS=100000 pytest -m slow tests/test_claims_fuzz.py` goes on until that
many claims were checked; `CF2_CLAIMS_SEED=7` starts elsewhere, `-s` shows how far it is. A failure names its seed.
"""

from __future__ import annotations

import os
import random
import traceback
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import cf2
from cf2.errors import CF2Error
from toys import InTurn

WIDTH, FEATURES, CLASSES = 6, 3, 3
QUICK = 24  # cases in every run
CALLS = 3  # of one model
CLAIMS = int(os.environ.get("CF2_CLAIMS", "5000"))
SEED = int(os.environ.get("CF2_CLAIMS_SEED", "0"))

# -- models ---------------------------------------------------------------------------------------------------


def _mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


CONVS: dict[str, Callable[[int, int], nn.Module]] = {
    "gcn": lambda a, b: pyg.GCNConv(a, b),
    "gcn without loops": lambda a, b: pyg.GCNConv(a, b, add_self_loops=False),
    "gcn improved": lambda a, b: pyg.GCNConv(a, b, improved=True),
    "sum": lambda a, b: pyg.GCNConv(a, b, normalize=False),
    "sage": lambda a, b: pyg.SAGEConv(a, b),
    "sage max": lambda a, b: pyg.SAGEConv(a, b, aggr="max"),
    "sage projected": lambda a, b: pyg.SAGEConv(a, b, project=True, normalize=True),
    "sage median": lambda a, b: pyg.SAGEConv(a, b, aggr="median"),
    "sage std": lambda a, b: pyg.SAGEConv(a, b, aggr="std"),
    "sage softmax": lambda a, b: pyg.SAGEConv(a, b, aggr="softmax"),
    "gin": lambda a, b: pyg.GINConv(_mlp(a, b), train_eps=True),
    "gat": lambda a, b: pyg.GATConv(a, b),
    "gat heads": lambda a, b: pyg.GATConv(a, b, heads=2, concat=False),
    "gatv2": lambda a, b: pyg.GATv2Conv(a, b),
    "graph": lambda a, b: pyg.GraphConv(a, b),
    "graph mean": lambda a, b: pyg.GraphConv(a, b, aggr="mean"),
    "cheb": lambda a, b: pyg.ChebConv(a, b, K=2),
    "tag": lambda a, b: pyg.TAGConv(a, b, K=2),
    "sg": lambda a, b: pyg.SGConv(a, b, K=2),
    "ssg": lambda a, b: pyg.SSGConv(a, b, alpha=0.3, K=2),
    "arma": lambda a, b: pyg.ARMAConv(a, b),
    "cluster": lambda a, b: pyg.ClusterGCNConv(a, b),
    "gen": lambda a, b: pyg.GENConv(a, b),
    "le": lambda a, b: pyg.LEConv(a, b),
    "mf": lambda a, b: pyg.MFConv(a, b),
    "feast": lambda a, b: pyg.FeaStConv(a, b, heads=2),
    "transformer": lambda a, b: pyg.TransformerConv(a, b),
    "gated": lambda a, b: pyg.ResGatedGraphConv(a, b),
    "gated graph": lambda a, b: InTurn("x, e", [(nn.Linear(a, b), "x -> x"), (pyg.GatedGraphConv(b, 2), "x, e -> x")]),
    "pna": lambda a, b: pyg.PNAConv(a, b, ["mean", "max", "sum"], ["identity", "amplification"], torch.ones(6)),
    "eg": lambda a, b: pyg.EGConv(a, b, num_heads=2),
    "supergat": lambda a, b: pyg.SuperGATConv(a, b),
    "film": lambda a, b: pyg.FiLMConv(a, b),
    "agnn": lambda a, b: InTurn("x, e", [(nn.Linear(a, b), "x -> x"), (pyg.AGNNConv(), "x, e -> x")]),
    "appnp": lambda a, b: InTurn("x, e", [(nn.Linear(a, b), "x -> x"), (pyg.APPNP(2, 0.2), "x, e -> x")]),
    "general": lambda a, b: pyg.GeneralConv(a, b),
    "general attention": lambda a, b: pyg.GeneralConv(a, b, attention=True),
    "edge": lambda a, b: pyg.EdgeConv(_mlp(2 * a, b)),
    "edge mean": lambda a, b: pyg.EdgeConv(_mlp(2 * a, b), aggr="mean"),
    "wl": lambda a, b: InTurn("x, e", [(pyg.WLConvContinuous(), "x, e -> x"), (nn.Linear(a, b), "x -> x")]),
    "lg": lambda a, b: InTurn("x, e", [(nn.Linear(a, b), "x -> x"), (pyg.LGConv(), "x, e -> x")]),
    "mixhop": lambda a, b: InTurn(
        "x, e", [(pyg.MixHopConv(a, b, [0, 1]), "x, e -> x"), (nn.Linear(2 * b, b), "x -> x")]
    ),
    "antisymmetric": lambda a, b: InTurn(
        "x, e", [(nn.Linear(a, b), "x -> x"), (pyg.AntiSymmetricConv(b), "x, e -> x")]
    ),
    "simple": lambda a, b: InTurn(
        "x, e", [(pyg.SimpleConv("mean", "self_loop"), "x, e -> x"), (nn.Linear(a, b), "x -> x")]
    ),
    "none": lambda a, b: InTurn("x, e", [(nn.Linear(a, b), "x -> x")]),
}
FIRST_CONVS = len(CONVS)  # from which the seeds of older failures draw


class Inner(nn.Module):
    """A layer of which forward wants more or returns more than one tensor, behind a linear map."""

    def __init__(self, a: int, b: int, layer: nn.Module, call: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.layer, self.call = nn.Linear(a, b), layer, call

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.call(self.layer, self.first(x), edge_index)


class Counting(nn.Module):
    """Remembers how often it was called."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.conv, self.calls = pyg.GCNConv(a, b), 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        return self.conv(x, edge_index) + 0.1 * self.calls


class Ordered(nn.Module):
    """Reads its nodes or edges by their place."""

    def __init__(self, a: int, b: int, of_edges: bool) -> None:
        super().__init__()
        self.first, self.of_edges = nn.Linear(a, b), of_edges

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.first(x)
        if not self.of_edges:
            return x + torch.arange(len(x)).to(x.dtype)[:, None] % 3
        weight = 1 + torch.arange(edge_index.size(1)).to(x.dtype) % 2
        return x.index_add(0, edge_index[1], x[edge_index[0]] * weight[:, None])


def _sorted(layer: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    made: Tensor = layer(x, edge_index[:, edge_index[1].argsort(stable=True)])
    return made


def _with_first(layer: nn.Module, x: Tensor, edge_index: Tensor) -> Tensor:
    made: Tensor = layer(x, x, edge_index)
    return made


CONVS |= {
    "sage min": lambda a, b: pyg.SAGEConv(a, b, aggr="min"),
    "sage var": lambda a, b: pyg.SAGEConv(a, b, aggr="var"),
    "sage product": lambda a, b: pyg.SAGEConv(a, b, aggr="mul"),
    "sage power": lambda a, b: pyg.SAGEConv(a, b, aggr="powermean"),
    "sage mean and max": lambda a, b: pyg.SAGEConv(a, b, aggr=["mean", "max"]),
    "sage three": lambda a, b: pyg.SAGEConv(a, b, aggr=["sum", "std", "min"]),
    "sage quantile": lambda a, b: pyg.SAGEConv(a, b, aggr=pyg.QuantileAggregation(0.3)),
    "sage lstm": lambda a, b: Inner(a, b, pyg.SAGEConv(b, b, aggr="lstm"), _sorted),
    "sage without root": lambda a, b: pyg.SAGEConv(a, b, root_weight=False),
    "gin mean": lambda a, b: pyg.GINConv(_mlp(a, b), aggr="mean"),
    "gin max": lambda a, b: pyg.GINConv(_mlp(a, b), aggr="max"),
    "gat without loops": lambda a, b: pyg.GATConv(a, b, add_self_loops=False),
    "gatv2 heads": lambda a, b: pyg.GATv2Conv(a, b, heads=2, concat=False, share_weights=True),
    "graph max": lambda a, b: pyg.GraphConv(a, b, aggr="max"),
    "cheb random walk": lambda a, b: pyg.ChebConv(a, b, K=3, normalization="rw"),
    "tag without norm": lambda a, b: pyg.TAGConv(a, b, K=1, normalize=False),
    "sg one": lambda a, b: pyg.SGConv(a, b, K=1, add_self_loops=False),
    "arma deep": lambda a, b: pyg.ARMAConv(a, b, num_stacks=2, num_layers=2, shared_weights=True),
    "cluster diagonal": lambda a, b: pyg.ClusterGCNConv(a, b, diag_lambda=0.5),
    "gen power": lambda a, b: pyg.GENConv(a, b, aggr="powermean", learn_p=True),
    "gen max": lambda a, b: pyg.GENConv(a, b, aggr="max", norm="layer"),
    "mf two degrees": lambda a, b: pyg.MFConv(a, b, max_degree=2),
    "transformer heads": lambda a, b: pyg.TransformerConv(a, b, heads=2, concat=False, beta=True),
    "transformer without root": lambda a, b: pyg.TransformerConv(a, b, root_weight=False),
    "pna wide": lambda a, b: pyg.PNAConv(a, b, ["std", "min"], ["attenuation", "linear"], torch.ones(6)),
    "eg several": lambda a, b: pyg.EGConv(a, b, ["mean", "max", "symnorm"], num_heads=2),
    "supergat scaled": lambda a, b: pyg.SuperGATConv(a, b, attention_type="SD"),
    "film mean": lambda a, b: pyg.FiLMConv(a, b, aggr="mean"),
    "general heads": lambda a, b: pyg.GeneralConv(a, b, aggr="mean", heads=2),
    "general skip": lambda a, b: pyg.GeneralConv(a, b, l2_normalize=True, skip_linear=True),
    "gcn2": lambda a, b: Inner(a, b, pyg.GCN2Conv(b, 0.3), _with_first),
    "fa": lambda a, b: Inner(a, b, pyg.FAConv(b, 0.2), _with_first),
    "dna": lambda a, b: Inner(a, b, pyg.DNAConv(b), lambda layer, x, e: layer(torch.stack([x, 2 * x], 1), e)),
    "directed": lambda a, b: pyg.DirGNNConv(pyg.GCNConv(a, b), alpha=0.3),
    "hypergraph": lambda a, b: pyg.HypergraphConv(a, b),
    "gps": lambda a, b: Inner(a, b, pyg.GPSConv(b, pyg.GCNConv(b, b), heads=2, dropout=0.0), _sorted),
    "stateful": Counting,
    "places of nodes": lambda a, b: Ordered(a, b, False),
    "places of edges": lambda a, b: Ordered(a, b, True),
}
NORMS: dict[str, Callable[[int], nn.Module] | None] = {
    "": None,
    "batch": pyg.BatchNorm,
    "layer": lambda width: pyg.LayerNorm(width, mode="node"),
    "layer of the graph": pyg.LayerNorm,
    "instance": pyg.InstanceNorm,
    "graph": pyg.GraphNorm,
    "pair": lambda width: pyg.PairNorm(),
    "mean": lambda width: pyg.MeanSubtractionNorm(),
    "size": lambda width: pyg.GraphSizeNorm(),
}
BY_GRAPH = ("layer of the graph", "instance", "graph", "pair", "mean", "size")  # these look at every node of the graph
POOLS: dict[str, Callable[[int], nn.Module]] = {
    "sum": lambda width: pyg.SumAggregation(),
    "mean": lambda width: pyg.MeanAggregation(),
    "max": lambda width: pyg.MaxAggregation(),
    "std": lambda width: pyg.StdAggregation(),
    "median": lambda width: pyg.MedianAggregation(),
    "softmax": lambda width: pyg.SoftmaxAggregation(),
    "attention": lambda width: pyg.AttentionalAggregation(nn.Linear(width, 1)),
    "sum and max": lambda width: InTurn(
        "x, b", [(pyg.MultiAggregation(["sum", "max"]), "x, b -> x"), (nn.Linear(2 * width, width), "x -> x")]
    ),
}
HEADS: dict[str, Callable[[Tensor], Tensor]] = {  # of classes
    "logits": lambda out: out,
    "log probabilities": lambda out: out.log_softmax(-1),
    "probabilities": lambda out: out.softmax(-1),
    "large": lambda out: 1e3 * out,
    "saturated": lambda out: (200 * out).softmax(-1),
    "small": lambda out: 1e-3 * out,
    "coarse": lambda out: (4 * out).round() / 4,  # many exact ties
    "tied": lambda out: out[..., :1].expand_as(out),
    "nearly tied": lambda out: out[..., :1] + 1e-7 * out,
    "masked": lambda out: torch.cat([out[..., :-1], 0 * out[..., -1:] - 1e9], -1),
}


class Net(nn.Module):
    """Layers of one kind with a norm between them, for nodes, pairs or graphs."""

    def __init__(self, level: str, conv: str, norm: str, pool: str, head: str, layers: int, width: int) -> None:
        super().__init__()
        sizes = [FEATURES] + [WIDTH] * layers
        self.convs = nn.ModuleList(CONVS[conv](a, b) for a, b in pairwise(sizes))
        made = NORMS[norm]
        self.norm = None if made is None else made(WIDTH)
        self.pool, self.head = POOLS[pool](WIDTH), nn.Linear(WIDTH, width)
        self.level, self.by_graph, self.said, self.kind = level, norm in BY_GRAPH, HEADS[head], conv

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, edge_label_index: Tensor | None = None
    ) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
            if self.norm is not None:
                x = self.norm(x, batch) if self.by_graph and self.level == "graph" else self.norm(x)
            x = torch.tanh(x)
        if self.level == "graph":
            x = self.pool(x, torch.zeros(len(x), dtype=torch.long) if batch is None else batch)
        elif self.level == "pair":
            assert edge_label_index is not None
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        return self.said(self.head(x))


# -- graphs ---------------------------------------------------------------------------------------------------


def graph(draw: random.Random, dtype: torch.dtype, large: bool = False) -> Data:
    """Few nodes and edges: directed or not, with loops, edges that occur twice, and nodes without any."""
    nodes = draw.choice([6, 7, 8]) if large else draw.choice([1, 2, 3, 4, 5, 5, 6])
    count = draw.randint(8, 11) if large else draw.randint(0, 6)
    pairs = [(draw.randrange(nodes), draw.randrange(nodes)) for _ in range(count)]
    if draw.random() < 0.7:
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
    if draw.random() < 0.7:
        pairs = list(dict.fromkeys(pairs))
    if draw.random() < 0.7:
        pairs += [(b, a) for a, b in pairs]
    x = torch.tensor([[draw.gauss(0, 1) for _ in range(FEATURES)] for _ in range(nodes)], dtype=dtype)
    if draw.random() < 0.5:
        x = (x > 0).to(dtype)
    return Data(x=x, edge_index=torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t().contiguous())


# -- calls ----------------------------------------------------------------------------------------------------

UNITS = ["edges", "edges", "edges", "features", "columns", "node_features", ("edges", "features")]
EDITS = [("remove",), ("remove",), ("add",), ("change",), ("remove", "add"), ("remove", "add", "change")]


def case(seed: int, *, first: bool = False) -> tuple[Net, Any, list[dict[str, Any]]]:
    """A model, its data and the options of some calls, all drawn from a seed."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    level, output = draw.choice(["node", "node", "graph", "pair"]), draw.choice(["auto"] * 4 + ["regression", "labels"])
    dtype = draw.choice([torch.float32] * 3 + [torch.float64])
    if not first and draw.random() < 0.05:
        dtype = torch.float16
    width = CLASSES if output != "auto" else draw.choice([2, CLASSES, CLASSES])
    heads = [name for name in HEADS if not first or "tied" not in name]
    head = draw.choice(heads) if output == "auto" else "logits"
    convs = list(CONVS)[: FIRST_CONVS if first else None]
    names = [draw.choice(list(table)) for table in (convs, NORMS, POOLS)]
    model = Net(level, *names, head, draw.choice([1, 2, 2]), width).to(dtype).eval()
    large = not first and draw.random() < 0.25
    graphs = [graph(draw, dtype, large) for _ in range(draw.randint(1, 3) if level == "graph" else 1)]
    calls = [call(draw, level, output, width, graphs)]
    if not first:  # what a model costs is paid once, so it is asked several times, and about more keys
        if level == "graph":
            graphs += [graph(draw, dtype, large=draw.random() < 0.5) for _ in range(3)]
        calls += [call(draw, level, output, width, graphs) for _ in range(CALLS - 1)]
        for options in calls:
            widen(draw, options, graphs, level)
    return model, graphs if level == "graph" else graphs[0], calls


def call(draw: random.Random, level: str, output: str, width: int, graphs: list[Data]) -> dict[str, Any]:
    """The options of one call."""
    options: dict[str, Any] = {"question": draw.choice(["why", "why", "factual", "counterfactual"])}
    options |= {"units": draw.choice(UNITS), "effort": draw.choice(["quick", "standard", "thorough"]), "epochs": 10}
    nodes = range(len(graphs[0].x))
    if level == "node":
        options["nodes"] = draw.sample(nodes, min(2, len(nodes)))
    elif level == "pair":
        options["pairs"] = [(draw.choice(nodes), draw.choice(nodes))]
    else:
        options["level"] = "graph"
    if options["question"] == "counterfactual":
        options["edits"] = draw.choice(EDITS)
        if draw.random() < 0.3:
            options["costs"] = {"add": 2, "change": 1.5}
    if output == "regression":
        options |= {"output": "regression", "tolerance": draw.choice([0.01, 0.1, 0.5])}
    if output == "labels":
        options["output"] = "multilabel_logits"
    if output != "auto" or draw.random() < 0.2:
        options["target"] = draw.randrange(width)
    pairs = [pair for one in graphs for pair in one.edge_index.t().tolist() if pair[0] != pair[1]]
    for name in ("keep", "forbid"):
        if pairs and draw.random() < 0.15:
            options[name] = [draw.choice(pairs)]
    if options["units"] == "edges" and options.get("edits", ("remove",)) != ("change",) and draw.random() < 0.2:
        options["connected"] = True
    if draw.random() < 0.15:
        options["confidence"] = draw.choice([0.05, 0.3])
    return options


SEARCHES = [
    {"method": "greedy"},
    {"method": "gradient", "search": True},
    {"method": "random", "search": True, "seed": 1},
    {"method": "random", "k": 3, "seed": 2},
]


def widen(draw: random.Random, options: dict[str, Any], graphs: list[Data], level: str) -> None:
    """More keys, searches that end early, and what is claimed of alternatives and contexts."""
    asked, edits = options["question"], options.get("edits", ("remove",))
    if level == "node":
        options["nodes"] = list(range(len(graphs[0].x)))
    elif level == "pair":
        nodes = range(len(graphs[0].x))
        options["pairs"] += [(draw.choice(nodes), draw.choice(nodes)) for _ in range(3)]
    if draw.random() < 0.1 and "connected" not in options:
        options["units"] = "nodes"
    if draw.random() < 0.3:
        options["proof"] = draw.choice([0, 3, 40])
    if draw.random() < 0.2:
        options["alternatives"] = 3
    if draw.random() < 0.4:
        options["contexts"] = draw.choice([16, 256])
        if edits == ("remove",) and draw.random() < 0.2:
            options["contexts_add"] = 2
        elif asked == "why" and "alternatives" not in options and draw.random() < 0.2:
            options["surely"] = 0.7
    if draw.random() < 0.3:
        for name in ("epochs", *(("effort", "proof", "confidence") if draw.random() < 0.3 else ())):
            options.pop(name, None)
        options |= draw.choice(SEARCHES[:3] if "effort" in options else SEARCHES)
        if options["method"] == "greedy" or "k" in options:
            for name in ("effort", "proof", "confidence"):
                options.pop(name, None)
            options.pop("surely", None)
            options.pop("alternatives", None)


def explained(seed: int, *, first: bool = False) -> cf2.Check:
    """The claims of a case checked; those of no call that is refused in words."""
    model, data, calls = case(seed, first=first)
    explainer, total = cf2.Explainer(model, data), cf2.Check()
    for options in calls:
        try:
            found = explainer.explain(**options)
        except CF2Error:
            continue
        total += cf2.check(found, model, data, most=512)
    return total


def test_no_claim_is_false() -> None:
    total = cf2.Check()
    for seed in range(QUICK):
        checked = explained(seed)
        assert checked, f"seed {seed}: {checked}"
        total += checked
    assert sum(count.checked for count in total.claims.values()) > 600, total
    for claim in ("found", "optimal", "minimal", "lower_bound", "impossible"):
        assert total.claims[claim].checked > 10, total


@pytest.mark.slow
def test_no_claim_of_many_is_false() -> None:
    total, seed, kinds = cf2.Check(), SEED, set()
    failed: dict[int, str] = {}  # by seed; the others are still tried
    more = True
    while more:
        kinds.add(case(seed)[0].kind)
        try:
            total += (own := explained(seed))
        except Exception:
            failed[seed] = traceback.format_exc()
        else:
            failed |= {} if own else {seed: str(own)}
        if seed in failed:
            print(f"seed {seed}: {failed[seed]}", flush=True)
        seed += 1
        more = sum(count.checked for count in total.claims.values()) < CLAIMS
        if not more or not (seed - SEED) % 20:
            print(f"{seed - SEED} cases, {len(kinds)} kinds of layer, {len(failed)} failed. {total}", flush=True)
    assert not failed, list(failed)


# 21202: whether everything removed keeps the answer was not asked where both tests pass, but not with the confidence.
# The others: norms over the whole graph, hidden by rounded outputs, by nodes without edges, or until edges are added.
@pytest.mark.parametrize("seed", [21202, 130, 30889, 30988, 31009, 60067, 60377])
def test_what_was_false_once_is_not(seed: int) -> None:
    checked = explained(seed, first=True)
    assert checked, f"seed {seed}: {checked}"
    assert checked.claims["outputs"].checked
    assert seed != 21202 or checked.claims["default"].checked


# 1200194: columns of two added edges came in another order than `Explanation.apply` gives them. 40: a norm over equal
# nodes makes rounding so large that two runs of one graph differ. 2000104: whether everything removed keeps
# the answer was not asked where a set passes that is not connected. 2000117: another answer was looked for beside an
# instance without units. 2000836: logits that differ by 1e-9 were judged as single probabilities. 2000233: an edge of
# noise led to features that are no units of the instance.
# 3000635: two logits of a context differ by 1e-8, and their probabilities by nothing. 5000134: a context without nodes.
# 6000224, 21000375: two classes at 0.5 are the same as scores and as probabilities. 6000202, 4480, 10459: a model that
# counts its runs, which a norm or an activation hides until its outputs are stored.
# 31000345: two classes with the same probability in single precision were said to be told apart by the model.
OLDER = [1200194, 40, 2000104, 2000117, 2000233, 2000836, 3000635, 5000134]
LATER = [*OLDER, 6000224, 21000375, 31000345, 6000202, 4480, 10459]


@pytest.mark.parametrize("seed", LATER)
def test_what_was_false_later_is_not(seed: int) -> None:
    checked = explained(seed)
    assert checked, checked


# -- what was found, made small ----------------------------------------------------------------------------------


class MixesAll(nn.Module):
    """Reads every node that is there, through a norm without `batch`."""

    def __init__(self, norm: nn.Module, scale: float) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.norm, self.head, self.scale = pyg.SAGEConv(2, 4), norm, nn.Linear(4, 2), scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scale * self.head(torch.tanh(self.norm(self.conv(x, edge_index))))


@pytest.mark.parametrize("norm", ["layer of the graph", "size", "graph"])
@pytest.mark.parametrize("edges", [[], [[0, 0], [1, 1]], [[0, 1], [1, 0]]])
@pytest.mark.parametrize("rows", [[[1.0, 1.0]] * 2, [[1.0, 0.5], [0.2, -1.0]]])
def test_a_norm_over_all_nodes_is_noticed_where_they_are_alike_or_have_no_edge(
    norm: str, edges: list[list[int]], rows: list[list[float]]
) -> None:
    made = NORMS[norm]
    assert made is not None
    model = MixesAll(made(4), 50.0).eval()
    data = Data(x=torch.tensor(rows), edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t())
    for units in ("columns", "features"):
        found = cf2.explain(model, data, nodes=[0, 1], units=units, epochs=5)
        assert cf2.check(found, model, data), cf2.check(found, model, data)


class Together(nn.Module):
    """Takes the mean over all graphs of the batch from each node."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.conv, self.head = pyg.GINConv(_mlp(2, 4)), nn.Linear(4, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        return self.head(pyg.global_max_pool(torch.tanh(h - 3 * h.mean(0)), batch))


def test_the_last_word_notices_mixing_that_no_probe_has_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(1)
    ends = torch.tensor([[0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0]])
    graphs = [Data(x=torch.randn(nodes, 2, generator=draw), edge_index=ends) for nodes in (3, 4, 5, 3, 4, 5)]
    monkeypatch.setattr("cf2.models.soundness._mixes", lambda *given, **named: False)
    found = cf2.explain(Together(), graphs, units=("edges", "features"), epochs=5)
    checked = cf2.check(found, Together(), graphs)
    assert checked, checked
    assert all(e.plain for e in found)
    assert checked.claims["found"].checked


def test_edges_out_of_the_farthest_nodes_count_where_messages_are_divided_by_them() -> None:
    model = pyg.ChebConv(1, 2, K=2, normalization="rw")
    with torch.no_grad():  # class 0 of node 0 leads by 0.75 - 1 / the edges out of node 1
        model.lins[0].weight.zero_()
        model.lins[1].weight.copy_(torch.tensor([[1.0], [0.0]]))
        model.bias.copy_(torch.tensor([0.75, 0.0]))
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[0, 1, 0, 2, 1, 2], [1, 0, 2, 0, 2, 1]]))
    found = cf2.explain(model, data, nodes=[0], contexts=16)
    assert found[0].size == 1
    assert cf2.check(found, model, data)


@pytest.mark.parametrize(("logit", "status"), [(5e-8, "tie"), (-5e-8, "tie"), (0.5, "found"), (-0.5, "found")])
def test_a_logit_as_small_as_rounding_is_a_tie(logit: float, status: str) -> None:
    class OneLogit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SimpleConv("sum")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index)

    data = Data(x=torch.tensor([[0.0], [logit], [-logit / 2]]), edge_index=torch.tensor([[1, 2, 0], [0, 0, 1]]))
    (e,) = cf2.explain(OneLogit(), data, nodes=[0], question="factual", output="logits")
    assert e.status == status
    if status == "tie":
        assert (e.minimal, e.optimal, e.lower_bound) == (None, None, None)
        assert "a tie and nothing is claimed" in e.summary()


class SameForAll(nn.Module):
    """Says the same of every graph, whatever it is."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return torch.ones(int(batch.max()) + 1, 3) + 0 * pyg.global_add_pool(x, batch)


@pytest.mark.parametrize("output", ["multilabel_logits", "logits"])
def test_nothing_is_said_where_no_node_is_left(output: str) -> None:
    data = Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0], [1]]))
    options: dict[str, Any] = {"target": 1} if output == "multilabel_logits" else {}
    found = cf2.explain(SameForAll(), [data], units="nodes", output=output, **options)
    assert found[0].status == "impossible"
    assert found[0].default is False
    checked = cf2.check(found, SameForAll(), [data])
    assert checked, checked
    assert checked.claims["default"].checked
