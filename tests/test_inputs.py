"""What people have is accepted, what cannot be meant is refused in a sentence that says what to do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN
from torch_geometric.transforms import ToSparseTensor

import cf2
from cf2.errors import CF2Error
from cf2.graphs.targets import check_ids
from fuzz_cases import Broken, Lazy
from toys import GraphNet, NodeNet, WeightedNet, random_graph, same_results

DATA, MODEL = random_graph(8, 10, seed=6), NodeNet("gcn", layers=2, seed=1)
GRAPHS = [random_graph(5, 6, seed=seed) for seed in range(3)]
QUICK: dict[str, Any] = {"method": "gradient", "k": 1}


def explain(data: Any = DATA, nodes: Any = None, model: Any = MODEL, **options: Any) -> cf2.Explanations:
    return cf2.explain(model, data, nodes, **(QUICK | options))


def keys(found: cf2.Explanations) -> list[Any]:
    return [e.key for e in found]


# -- nodes ----------------------------------------------------------------------------------------------------

MASK = [place in (1, 6) for place in range(8)]


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (3, [3]),
        ((6, 1), [6, 1]),
        (range(6, 0, -5), [6, 1]),
        (slice(2, 4), [2, 3]),
        (torch.tensor([6, 1], dtype=torch.int32), [6, 1]),
        (pandas.Series([6, 1], index=["a", "b"]), [6, 1]),
        ((node for node in (6, 1)), [6, 1]),
        (frozenset({6, 1}), [1, 6]),
        (MASK, [1, 6]),
        (torch.tensor(MASK), [1, 6]),
        (pandas.Series(MASK, dtype="boolean"), [1, 6]),
    ],
)
def test_ids_in_every_form(nodes: Any, wanted: list[int]) -> None:
    found = check_ids(nodes, 8)
    assert found == wanted
    assert all(type(one) is int for one in found)


def test_at_graph_level_they_are_positions() -> None:
    model = GraphNet("gin")
    assert keys(explain(GRAPHS, model=model)) == [0, 1, 2]
    assert keys(explain(GRAPHS, slice(1, None), model=model)) == [1, 2]
    assert keys(explain(GRAPHS, torch.tensor([True, False, True]), model=model)) == [0, 2]
    with pytest.raises(CF2Error, match="position of a graph in `nodes` to be a whole number from 0 to 2"):
        explain(GRAPHS, [3], model=model)


def test_what_is_given_twice_is_explained_twice() -> None:
    found = explain(nodes=[3, 1, 3])
    assert keys(found) == [3, 1, 3]
    assert same_results(found[:1], found[2:])
    with pytest.raises(CF2Error, match="one class in `target` for each key, but got several for 3"):
        explain(nodes=[3, 3], target=[0, 1])


# -- data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        tuple,
        lambda graphs: (graph for graph in graphs),
        Batch.from_data_list,
        lambda graphs: DataLoader(graphs, batch_size=2, shuffle=True),
        lambda graphs: torch.utils.data.Subset(graphs, [0, 1, 2]),
    ],
    ids=["tuple", "generator", "batch", "loader", "subset"],
)
def test_graphs_in_every_form(wrap: Callable[[list[Data]], Any]) -> None:
    model = GraphNet("gin")
    assert same_results(explain(wrap(GRAPHS), model=model), explain(GRAPHS, model=model))


def test_one_graph_in_a_list() -> None:
    model = GraphNet("gin")
    assert same_results(explain([DATA], [3], level="node"), explain(DATA, [3]))
    assert same_results(explain([DATA], model=model), explain(DATA, model=model, level="graph"))
    with pytest.raises(CF2Error, match=r'from 0 to 0, but got 3\. There is one graph: pass level="node"'):
        explain([DATA], [3])


def test_a_batch_is_one_graph_where_nodes_are_asked_for() -> None:
    batch = Batch.from_data_list(GRAPHS)
    (one,) = explain(batch, [6], level="node")
    (alone,) = explain(GRAPHS[1], [1])
    assert (one.edges - 5).tolist() == alone.edges.tolist()
    with pytest.raises(CF2Error, match='level="graph" for positions'):
        explain(batch, [1])


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_edges_as_a_sparse_matrix(beside: bool, directed: bool) -> None:
    data = random_graph(8, 10, seed=6, directed=directed)
    data.edge_index = data.edge_index.unique(dim=1)
    sparse = ToSparseTensor(remove_edge_index=not beside)(copy.copy(data))
    names = list(sparse.keys())
    assert same_results(explain(sparse, [1, 3]), explain(data, [1, 3]))
    assert list(sparse.keys()) == names


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_sparse_matrix_in_every_layout(layout: torch.layout) -> None:
    data = random_graph(8, 10, seed=6, directed=True)
    data.edge_index = data.edge_index.unique(dim=1)
    tails, heads = data.edge_index
    matrix = torch.zeros(8, 8).index_put((heads, tails), torch.tensor(1.0)).to_sparse(layout=layout)
    assert same_results(explain(Data(x=data.x, adj_t=matrix), [1, 3]), explain(data, [1, 3]))


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_matrix_that_is_damaged_is_not_read() -> None:
    """torch does not check these, and would read memory that is not its own."""
    pointer, columns = torch.tensor([0, 9, 2, 1, 7, 7, 7, 7, 7]), torch.tensor([0, 1, 99])
    matrix = torch.sparse_csr_tensor(pointer, columns, torch.ones(3), size=(8, 8), check_invariants=False)
    with pytest.raises(CF2Error, match="an invalid matrix"):
        explain(Data(x=DATA.x, adj_t=matrix), [1])
    matrix = torch.sparse_csr_tensor(pointer * 0, columns[:0], torch.ones(0), size=(8, 8))
    assert explain(Data(x=DATA.x, adj_t=matrix), [1])[0].status == "empty"


@pytest.mark.filterwarnings("ignore:Sparse")
def test_a_sparse_matrix_of_weights_or_of_other_edges_is_refused() -> None:
    data = copy.copy(DATA)
    data.edge_weight = torch.linspace(0.5, 2.0, data.num_edges)
    with pytest.raises(CF2Error, match=r"other values\. Store the edges in `edge_index`"):
        explain(ToSparseTensor()(data), [1])
    data = copy.copy(DATA)
    data.adj_t = torch.eye(8).to_sparse()
    with pytest.raises(CF2Error, match="the same edges"):
        explain(data, [1])
    data.adj_t = object()
    with pytest.raises(CF2Error, match="sparse torch matrix of ones"):
        explain(data, [1])


def test_labels_of_another_length_are_no_labels() -> None:
    data = copy.copy(DATA)
    data.y = torch.zeros(2, dtype=torch.long)
    assert explain(data, [6])[0].label is None


# -- models ---------------------------------------------------------------------------------------------------


def test_a_lazy_model_is_run_once_first() -> None:
    model = Lazy("node")
    with pytest.raises(CF2Error, match="Run the model once"):
        explain(nodes=[1], model=model)
    model(DATA.x, DATA.edge_index)
    assert keys(explain(nodes=[1], model=model)) == [1]


COMPILED = pytest.param(torch.compile, marks=pytest.mark.slow)


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.optim.swa_utils.AveragedModel, COMPILED])
def test_the_module_inside_of_a_wrapper_is_explained(wrap: Callable[[nn.Module], nn.Module]) -> None:
    assert same_results(explain(nodes=[1], model=wrap(MODEL)), explain(nodes=[1]))
    graph_model = GraphNet("gin")
    assert same_results(explain(GRAPHS, model=wrap(graph_model)), explain(GRAPHS, model=graph_model))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: None, "but got None"),
        (lambda: GCN, r"the class GCN itself. Create an instance: GCN\(…\)"),
        (lambda: MODEL.state_dict(), "type OrderedDict"),
        (lambda: MODEL.forward, "type method"),
        (lambda: torch.jit.trace(nn.Linear(4, 3), torch.ones(2, 4)), "Pass the original module"),
        (lambda: copy.deepcopy(MODEL).to("meta"), "on the meta device"),
    ],
    ids=["none", "class", "weights", "forward", "traced", "meta"],
)
def test_what_is_no_model_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        explain(nodes=[1], model=make())


# -- options --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "wanted"),
    [(0, [0, 0]), ([0, 1], [0, 1]), (torch.tensor([0, 1]), [0, 1]), (np.int64(1), [1, 1]), ({3: 1, 1: 0}, [0, 1])],
    ids=["one", "list", "tensor", "numpy", "by key"],
)
def test_targets_in_every_form(target: Any, wanted: list[int]) -> None:
    assert [e.explained for e in explain(nodes=[1, 3], target=target)] == wanted


def test_progress_is_a_function_or_a_bar(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[int] = []
    explain(nodes=[1, 3, 5], progress=told.append)
    assert sum(told) == 3
    assert capfd.readouterr().err == ""
    explain(nodes=[1, 3, 5], progress=False)
    assert capfd.readouterr().err == ""
    explain(nodes=[1, 3, 5], progress=True)
    shown = capfd.readouterr()
    assert "3/3" in shown.err
    assert shown.out == ""
    for wrong in (1, "yes", []):
        with pytest.raises(CF2Error, match="`progress` to be a function, True or False"):
            explain(nodes=[1], progress=wrong)


HETERO = HeteroData({"a": {"x": DATA.x}, ("a", "to", "a"): {"edge_index": DATA.edge_index}})
TWO = torch.zeros(2, dtype=torch.long, device="meta")
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "nodes": [
        (1.0, r"but got 1\.0. Convert it with int"),
        ("3", "but got '3'. Convert it with int"),
        ([0, None], "but got None"),
        ([True, False], "one bool for each of the 8 .*, but got 2"),
        ([True, 0], "but got 1 among 2 values"),
        ([False] * 8, "a mask in `nodes` to choose at least one"),
        (torch.ones(8, dtype=torch.uint8), "ids, or a mask of bools.* Pass a mask as bool"),
        (-1, "from 0 to 7, but got -1. Ids start at 0"),
        ([[0, 1], [2]], r"but got \[0, 1\]. Pass one flat list"),
        (torch.ones(8, 10, dtype=torch.bool), "Pass one flat list"),
        ([], "at least one node"),
        (slice(0.5, None), "slice"),
        ({0, "a"}, "but got 'a'"),
        (TWO, "`nodes`"),
        ((1 // node for node in (1, 0)), "ZeroDivisionError"),
    ],
    "data": [
        (None, "but got None"),
        ("graph.pt", "Load the file first"),
        (DATA.x, r"Data\(x=x, edge_index=edge_index\)"),
        ((DATA.x, DATA.edge_index), r"graph 0 .* Data\(x=x"),
        ({"x": DATA.x}, "Data.from_dict"),
        (Data, "the class Data itself"),
        ([], "at least one graph"),
        (Batch.from_data_list([HETERO]), "to_homogeneous"),
        (HETERO, "to_homogeneous"),
        ([DATA, "x"], "graph 1 of `data` to be a Data object, but got an object of type str"),
        (networkx.path_graph(4), "from_networkx"),
        (Data(x=DATA.x, edge_index=DATA.edge_index, batch=torch.arange(8) % 2), "a `batch` of several"),
        (Batch(x=DATA.x, edge_index=DATA.edge_index), "a Batch made by Batch.from_data_list"),
        (DataLoader(range(3)), "a loader of subgraphs. Pass the Data object itself"),
        (DataLoader([1, 2]), "graph 0 of `data` to be a Data object, but got an object of type int"),
        (iter([DATA, 3]), "graph 1 of `data`"),
    ],
    "target": [
        (0.0, "`target`"),
        (True, "`target`"),
        ([0], "one class in `target` per key, 2, but got 1"),
        (torch.zeros(8, dtype=torch.long), r"but got 8. Pass target\[nodes\]"),
        (-1, "whole numbers from 0"),
        (3, "classes from 0 to 2"),
        ({1: 0}, "class in `target` for each key"),
        (TWO, "`target`"),
    ],
    "device": [("cuda:7", "device"), ("gpu", "device")],
    "k": [(float("nan"), "`k`"), (-1, "`k`")],
    "settings": [({"k": 3}, "an option, or a setting")],
}
BESIDE = {"data": {"nodes": None, "model": GraphNet("gin"), "level": "graph"}}  # what is asked for with a wrong value


@pytest.mark.parametrize(("name", "value", "said"), [(name, *row) for name in REFUSED for row in REFUSED[name]])
def test_what_cannot_be_meant_is_refused(name: str, value: Any, said: str) -> None:
    with pytest.raises(CF2Error, match=said):
        explain(**{"nodes": [1, 3], **BESIDE.get(name, {}), name: value})


def test_a_data_set_that_fails_is_named_with_its_error() -> None:
    with pytest.raises(CF2Error, match=r"give its graph 0, but got FileNotFoundError: graph\.pt") as caught:
        explain(Broken(), model=GraphNet("gin"))
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_only_a_method_that_needs_it_takes_something_trained() -> None:
    for trained, method, said in (
        ({1: []}, "gradient", "no `trained` for method 'gradient'"),
        ({}, "pgexplainer", r"a result of cf2\.fit, but got an object of type dict\. Train one"),
        ("explainer.safetensors", "pgexplainer", r"cf2\.load_trained"),
        *(
            ({1: edges}, "truth", r"true edges of 1 in `trained` to be pairs of node ids, \[n, 2\]")
            for edges in ("ab", [(0, 1, 2)], [[0, 1], [2]], None)
        ),
    ):
        with pytest.raises(CF2Error, match=said):
            cf2.explain(MODEL, DATA, [1], method=method, trained=trained)


def test_fit_checks_the_same_and_names_its_own_options() -> None:
    options: dict[str, Any] = {"method": "pgexplainer", "epochs": 1}
    for nodes, said in ((1.5, "whole number"), ([99], "from 0 to 7"), (None, "`nodes` or `pairs` for a single graph")):
        with pytest.raises(CF2Error, match=said):
            cf2.fit(MODEL, DATA, nodes, **options)
    with pytest.raises(CF2Error, match="Create an instance"):
        cf2.fit(NodeNet, DATA, [1], **options)
    with pytest.raises(CF2Error, match="`seed`"):
        cf2.fit(MODEL, DATA, [1], seed=2**64, **options)
    with pytest.raises(CF2Error, match="but got 'max_units'") as caught:
        cf2.fit(MODEL, DATA, [1], max_units=3, **options)
    assert "max_units" not in str(caught.value).partition(", but got")[0]
    with pytest.raises(CF2Error, match="a method that needs training"):
        cf2.fit(MODEL, DATA, [1], method="random")
    mask = torch.arange(8) < 4
    assert cf2.fit(WeightedNet("gcn", seed=1), DATA, mask, **options).facts["instances"] == 4


# -- results --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    return explain(nodes=[1, 3, 5])


def test_results_are_a_sequence(found: cf2.Explanations) -> None:
    assert found[np.int64(1)] is found[1] is found[-2]
    assert keys(found[1:]) == [3, 5]
    assert found.index(found[2]) == 2
    assert found[0] in found
    assert MODEL not in found
    assert next(reversed(found)) is found[2]
    for outside in (3, -4):
        with pytest.raises(IndexError, match="Expected an index below 3"):
            found[outside]


@pytest.mark.parametrize("index", [3, -4, 1.0, "1", None, slice("a", None), torch.tensor([0, 1])])
def test_what_is_no_index_is_refused(found: cf2.Explanations, index: Any) -> None:
    with pytest.raises(CF2Error, match=r"index|slice"):
        found[index]
    with pytest.raises(CF2Error, match="index"):
        found.plot(9 if index is None or isinstance(index, slice) else index)  # None draws what all of them share


@pytest.mark.parametrize("key", [2, "1", None, [1, 3], np.array([1, 3]), 1.5])
def test_what_is_no_key_is_refused_with_those_there_are(found: cf2.Explanations, key: Any) -> None:
    with pytest.raises(CF2Error, match=r"one of 3 explanations \(1, 3, 5\)"):
        found.at(key)


def test_methods_of_results_check_what_they_are_given(found: cf2.Explanations, tmp_path: Path) -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: found + found.items, "Explanations to add"),  # type: ignore[operator]
        (lambda: found.only("found"), "function"),  # type: ignore[arg-type]
        (lambda: found.save(3), "path of a file"),  # type: ignore[arg-type]
        (lambda: found.save(tmp_path / "x.txt"), "ends in .parquet or .json"),
        (lambda: found.save(tmp_path / "nowhere" / "x.json"), "directory to save in"),
        (lambda: cf2.load(tmp_path / "missing.json"), "which is not there"),
        (lambda: found.report(None), "path of a file"),  # type: ignore[arg-type]
        (lambda: found.report(tmp_path / "r.html", pictures=-1), "`pictures`"),
        (lambda: found.report(tmp_path / "r.html", rows="all"), "`rows`"),  # type: ignore[arg-type]
        (lambda: found.report(tmp_path / "r.html", title=3), "`title`"),  # type: ignore[arg-type]
        (lambda: found.only(lambda e: False).summary(), "at least one"),
        (lambda: found[0].chosen("edge"), "Did you mean 'edges'"),
        (lambda: found[0].edge_mask([[0, 1], [2]]), r"shape \[2, edges\]"),
        (lambda: found[0].edge_mask(DATA.edge_index.float()), "whole numbers"),
        (lambda: found[0].plot(size=3), "`size`"),  # type: ignore[arg-type]
        (lambda: found[0].plot(size=(float("nan"), 2)), "`size`"),
        (lambda: found[0].plot(context=[]), "`context` to be a mapping"),  # type: ignore[arg-type]
        (lambda: found[0].plot(context={"class_names": 3}), "`class_names`"),
        (lambda: found[0].plot(context={"truth": {"1": 7}}), "`truth`"),
    ]
    for call, said in calls:
        with pytest.raises(CF2Error, match=said):
            call()
