"""The data sets have the sizes, the truth and the splits that the paper's protocol says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch_geometric.data import Data

from cf2.errors import CF2Error
from cf2.samples import molecules
from cf2.samples import registry as datasets


def test_names_that_are_no_names_are_refused():
    with pytest.raises(CF2Error, match=r"Expected the data set.*Did you mean 'ba-shapes'"):
        datasets.load("ba-shape")


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes"),
    [("ba-shapes", 700, 2055, 4), ("tree-cycles", 871, 976, 2), ("ba-2motifs", 25, 25.5, 2)],
)
def test_synthetic_graphs_have_their_sizes_and_are_simple_undirected_and_seeded(name, nodes, edges, classes):
    counts = datasets.statistics(name)
    assert (counts["nodes"], counts["edges"], counts["classes"]) == (nodes, edges, classes)
    assert (counts["truth"], counts["features"]) == (True, 10)
    first, again, other = (datasets.load(name, seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    for graph in first.graphs[:20]:
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert graph.is_coalesced()


@pytest.mark.parametrize("name", ["ba-shapes", "tree-cycles"])
def test_each_motif_node_has_its_own_connected_motif_as_truth(name):
    dataset = datasets.load(name)
    members = (dataset.data.motif >= 0).nonzero().view(-1).tolist()
    for node in members[::7]:
        columns = dataset.data.edge_index[:, dataset.truth(node)]
        assert columns.shape[1] == 2 * 6
        assert node in columns
        same = (dataset.data.motif == dataset.data.motif[node]).nonzero().view(-1)
        assert set(columns.unique().tolist()) == set(same.tolist())
    assert dataset.truth(0) is None
    for key in (-1, len(dataset)):
        with pytest.raises(CF2Error, match=f"0 to {len(dataset) - 1}"):
            dataset.truth(key)


def test_random_edges_inside_a_motif_are_not_its_truth():
    data = datasets.load("tree-cycles", seed=50).data  # a seed with a random edge between two nodes of one cycle
    ends = data.motif[data.edge_index]
    inside = (ends[0] >= 0) & (ends[0] == ends[1])
    assert int(inside.sum()) == 60 * 12 + 2
    assert int((data.edge_motif >= 0).sum()) == 60 * 12


def test_the_fingerprint_tells_apart_edges_labels_and_features():
    dataset = datasets.load("ba-shapes")

    def changed(**fields):
        return replace(dataset, graphs=[Data(**{**dataset.data.to_dict(), **fields})]).fingerprint()

    x, y, edge_index = dataset.data.x, dataset.data.y, dataset.data.edge_index
    other_value, zero, other_label = x.clone(), x.clone(), y.clone()
    other_value[3, 4] *= 2
    zero[3, 4] = 0
    other_label[5] += 1
    found = [
        dataset.fingerprint(),
        changed(x=other_value),
        changed(x=zero),
        changed(x=x.double()),
        changed(x=x.bfloat16()),
        changed(y=other_label),
        changed(edge_index=edge_index[:, 1:]),
        changed(edge_index=edge_index.flip(0)),
    ]
    assert len(set(found)) == len(found)
    assert changed(x=x.clone(), edge_index=edge_index.t().contiguous().t()) == found[0]


def test_a_graph_without_edges_or_features_has_a_fingerprint():
    bare = Data(x=torch.zeros(3, 2), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.tensor([0]))
    dataset = datasets.Dataset("bare", "graph", [bare], 2, 2, ("a", "b"), (0,))
    assert dataset.fingerprint() != replace(dataset, graphs=[bare, bare]).fingerprint()


def test_ba_2motifs_plants_the_motif_of_the_label():
    dataset = datasets.load("ba-2motifs")
    assert [int(dataset.truth(key).sum()) // 2 for key in (0, 1, 998, 999)] == [6, 5, 6, 5]
    assert torch.bincount(dataset.labels).tolist() == [500, 500]


def test_split_is_a_seeded_partition_of_80_to_20():
    dataset = datasets.load("tree-cycles")
    train, test = datasets.split(dataset, 5)
    assert len(train) == int(0.8 * 871)
    assert sorted(torch.cat([train, test]).tolist()) == list(range(871))
    assert torch.equal(test, datasets.split(dataset, 5)[1])
    assert not torch.equal(test, datasets.split(dataset, 6)[1])
    assert train[:3].tolist() != sorted(range(3))


def test_explained_instances_have_a_positive_label_and_a_positive_prediction():
    dataset = datasets.load("ba-shapes")
    _, test = datasets.split(dataset, 0)
    predictions = dataset.labels.clone()
    motif = test[dataset.labels[test] > 0]
    predictions[motif[0]] = 0  # label motif, predicted base
    base = test[dataset.labels[test] == 0]
    predictions[base[0]] = 1  # label base, predicted motif
    chosen = datasets.instances_to_explain(dataset, test, predictions)
    assert chosen.tolist() == motif[1:].tolist()
    assert torch.equal(chosen, datasets.instances_to_explain(dataset, test, predictions[test]))
    with pytest.raises(CF2Error, match="a prediction for each"):
        datasets.instances_to_explain(dataset, test, predictions[:5])


def molecule(atoms: str, bonds: list[tuple[int, int]]) -> Data:
    kinds = torch.tensor([molecules.MUTAG_ATOMS.index(atom) for atom in atoms])
    edges = torch.tensor(bonds + [(b, a) for a, b in bonds]).t()
    return Data(x=torch.eye(len(molecules.MUTAG_ATOMS))[kinds], edge_index=edges)


RING = [(i, (i + 1) % 6) for i in range(6)]
NITRO = [(0, 6), (6, 7), (6, 8)]


@pytest.mark.parametrize(
    ("atoms", "bonds", "edges"),
    [
        ("CCCCCCNOO", RING + NITRO, 9),  # nitrobenzene
        ("CCCCCCNOONOO", [*RING, *NITRO, (3, 9), (9, 10), (9, 11)], 12),  # two nitro groups share the ring
        ("CCCCCNNOO", RING + NITRO, 0),  # a nitrogen in the ring
        ("CCCCCCNOOO", [*RING, *NITRO, (6, 9)], 0),  # three oxygens
        ("CCCCCCNOOC", [*RING, *NITRO, (8, 9)], 0),  # one oxygen is not terminal
        ("CCCCCNOO", [(i, (i + 1) % 5) for i in range(5)] + [(0, 5), (5, 6), (5, 7)], 0),  # a five-ring
        ("CCCCCCNOO", RING[:5] + NITRO, 0),  # a chain
    ],
)
def test_the_ring_and_nitro_matcher(atoms, bonds, edges):
    graph = molecule(atoms, bonds)
    found = molecules.benzene_nitro_edges(graph)
    assert int(found.sum()) == 2 * edges


@pytest.mark.data
def test_mutag0_has_eleven_true_edges_per_mutagen_and_none_elsewhere():
    dataset = datasets.load("mutag0")
    assert len(dataset) == 2301
    edges = torch.tensor([int(graph.truth.sum()) / 2 for graph in dataset.graphs])
    mutagens = dataset.labels == molecules.MUTAGEN
    assert int(mutagens.sum()) == 448
    assert abs(float(edges[mutagens].mean()) - 11.0) < 0.05
    assert float(edges[~mutagens].sum()) == 0


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "features", "classes"),
    [("mutag", 4337, None, 14, 2), ("nci1", 4110, None, 37, 2), ("citeseer", 1, 3312, 3703, 6)],
)
def test_real_sizes_are_those_of_the_paper(name, graphs, nodes, features, classes):
    counts = datasets.statistics(name)
    assert (counts["graphs"], counts["features"], counts["classes"]) == (graphs, features, classes)
    assert nodes is None or counts["nodes"] == nodes
    assert name != "mutag" or list(counts["benzene_no2"].values()) == [448, 1953, 83, 1853]


@pytest.mark.data
def test_citeseer_explains_the_first_200_test_nodes():
    dataset = datasets.load("citeseer")
    _, test = datasets.split(dataset, 0)
    chosen = datasets.instances_to_explain(dataset, test, torch.zeros(len(dataset), dtype=torch.long))
    assert torch.equal(chosen, test[:200])
    assert dataset.truth(0) is None
