"""The data sets have the sizes, the truth and the splits that the paper's protocol says."""

from __future__ import annotations

import os
import pickle
import shutil
import time
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from cf2 import datasets
from cf2.datasets import molecules, storage
from cf2.errors import CF2Error

ROOT = os.environ.get("CF2_DATA", "")


def test_unknown_name_gives_the_nearest():
    with pytest.raises(CF2Error, match="Did you mean 'ba-shapes'"):
        datasets.load("ba-shape")


@pytest.mark.parametrize("name", ["tu:", "tu:../x", "planetoid:a/b", "other:x"])
def test_names_that_are_no_names_are_refused(name):
    with pytest.raises(CF2Error, match="Expected"):
        datasets.load(name)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "classes"),
    [
        ("ba-shapes", 700, 2055, 4),
        ("tree-cycles", 871, 976, 2),
        ("ba-community", 1400, 4460, 8),
        ("tree-grid", 1231, 1705, 2),
        ("ba-2motifs", 25, 25.5, 2),
    ],
)
def test_synthetic_sizes(name, nodes, edges, classes):
    found = datasets.statistics(name)
    assert (found["nodes"], found["edges"], found["classes"]) == (nodes, edges, classes)
    assert found["truth"] is True
    assert found["features"] == 10


@pytest.mark.parametrize("name", ["ba-shapes", "tree-cycles", "ba-community", "tree-grid", "ba-2motifs"])
def test_synthetic_graphs_are_simple_undirected_and_seeded(name):
    first, again, other = (datasets.load(name, seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint() == again.fingerprint() != other.fingerprint()
    for graph in first.graphs[:20]:
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert graph.is_coalesced()


@pytest.mark.parametrize(
    ("name", "edges"), [("ba-shapes", 6), ("tree-cycles", 6), ("tree-grid", 12), ("ba-community", 6)]
)
def test_each_motif_node_has_its_own_connected_motif_as_truth(name, edges):
    dataset = datasets.load(name)
    members = (dataset.data.motif >= 0).nonzero().view(-1).tolist()
    for node in members[::7]:
        columns = dataset.data.edge_index[:, dataset.truth(node)]
        assert columns.shape[1] == 2 * edges
        assert node in columns
        same = (dataset.data.motif == dataset.data.motif[node]).nonzero().view(-1)
        assert set(columns.unique().tolist()) == set(same.tolist())
    assert dataset.truth(0) is None
    assert not dataset.truth_edges(0).any()


def test_random_edges_inside_a_motif_are_not_its_truth():
    dataset = datasets.load("tree-cycles")
    data = dataset.data
    inside = (data.motif[data.edge_index[0]] >= 0) & (data.motif[data.edge_index[0]] == data.motif[data.edge_index[1]])
    assert int((data.edge_motif >= 0).sum()) == 60 * 12
    assert int(inside.sum()) >= 60 * 12


def test_ba_2motifs_plants_the_motif_of_the_label():
    dataset = datasets.load("ba-2motifs")
    assert [int(dataset.truth(key).sum()) // 2 for key in (0, 1, 998, 999)] == [6, 5, 6, 5]
    assert torch.bincount(dataset.labels).tolist() == [500, 500]


def test_keys_out_of_range_are_refused():
    dataset = datasets.load("ba-shapes")
    for key in (-1, 700):
        with pytest.raises(CF2Error, match="0 to 699"):
            dataset.truth(key)


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
    kinds = torch.tensor([molecules.ATOMS.index(atom) for atom in atoms])
    edges = torch.tensor(bonds + [(b, a) for a, b in bonds]).t()
    return Data(x=torch.eye(len(molecules.ATOMS))[kinds], edge_index=edges)


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


def test_packing_and_unpacking_give_the_same_graphs():
    graphs = datasets.load("ba-2motifs").graphs[:5]
    again = storage.unpack(storage.pack(graphs))
    for before, after in zip(graphs, again):
        for key in ("x", "edge_index", "y", "truth"):
            assert torch.equal(before[key], after[key])


def raw_tu(folder: Path, name: str = "TINY") -> Path:
    """Two graphs, a path of three nodes and one edge, written as TUDataset writes them."""
    raw = folder / "TUDataset" / name / "raw"
    raw.mkdir(parents=True)
    (raw / f"{name}_A.txt").write_text("1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n")
    (raw / f"{name}_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n")
    (raw / f"{name}_graph_labels.txt").write_text("7\n9\n")
    (raw / f"{name}_node_labels.txt").write_text("0\n1\n2\n0\n2\n")
    return raw


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CF2_DATA", raising=False)
    return tmp_path / "cache" / "cf2"


@pytest.fixture
def offline(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


def test_any_tu_set_is_read_from_a_read_only_root(cache, tmp_path):
    raw = raw_tu(tmp_path / "data")
    before = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    raw.chmod(0o555)
    first = datasets.load("tu:TINY", root=tmp_path / "data")
    raw.chmod(0o755)
    assert [g.num_nodes for g in first.graphs] == [3, 2]
    assert first.labels.tolist() == [0, 1]
    assert first.graphs[1].edge_index.tolist() == [[0, 1], [1, 0]]
    assert first.num_features == 3
    assert sorted(path.name for path in (tmp_path / "data").rglob("*")) == before
    assert len(list((cache / "processed").iterdir())) == 1
    assert datasets.load("tu:TINY", root=tmp_path / "data").fingerprint() == first.fingerprint()


def test_a_changed_raw_file_is_not_answered_from_the_cache(cache, tmp_path, monkeypatch):
    raw = raw_tu(tmp_path / "data")
    monkeypatch.setenv("CF2_DATA", str(tmp_path / "data"))
    assert datasets.load("tu:TINY").labels.tolist() == [0, 1]
    (raw / "TINY_graph_labels.txt").write_text("9\n7\n")
    assert datasets.load("tu:TINY").labels.tolist() == [1, 0]


def test_a_broken_processed_file_is_made_again(cache, tmp_path):
    raw_tu(tmp_path / "data")
    first = datasets.load("tu:TINY", root=tmp_path / "data")
    (stored,) = (cache / "processed").iterdir()
    stored.write_bytes(stored.read_bytes()[:100])
    assert datasets.load("tu:TINY", root=tmp_path / "data").fingerprint() == first.fingerprint()


def test_a_missing_raw_file_is_named_with_what_to_do(cache, tmp_path, offline):
    with pytest.raises(CF2Error, match=r"Mutagenicity_A\.txt.*CF2_DATA"):
        datasets.load("mutag0", root=tmp_path)
    raw = raw_tu(tmp_path / "data")
    (raw / "TINY_graph_labels.txt").unlink()
    with pytest.raises(CF2Error, match=r"TINY_graph_labels\.txt.*is missing"):
        datasets.load("tu:TINY", root=tmp_path / "data")
    assert not list(cache.rglob("raw"))


def test_the_overview_lists_sets_whose_files_are_missing(cache, offline):
    rows = {row["name"]: row for row in datasets.overview()}
    assert list(rows) == datasets.names()
    assert "Mutagenicity_A.txt" in rows["mutag"]["problem"]
    assert rows["ba-shapes"]["nodes"] == 700


def test_a_raw_pickle_that_would_run_code_is_refused(cache, tmp_path):
    raw = tmp_path / "Planetoid" / "Fake" / "raw"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.fake.{part}").write_bytes(pickle.dumps(os.getcwd))
    with pytest.raises(CF2Error, match=r"ind\.fake\.x.*would run posix\.getcwd"):
        datasets.load("planetoid:Fake", root=tmp_path)


@pytest.mark.data
def test_the_papers_table_of_benzene_no2():
    found = datasets.statistics("mutag")
    assert list(found["benzene_no2"].values()) == [448, 1953, 83, 1853]
    assert found["graphs"] == 4337


@pytest.mark.data
def test_mutag0_has_eleven_true_edges_per_mutagen_and_none_elsewhere():
    dataset = datasets.load("mutag0")
    assert len(dataset) == 2301
    edges = torch.tensor([int(graph.truth.sum()) / 2 for graph in dataset.graphs])
    mutagens = dataset.labels == molecules.MUTAGEN
    assert int(mutagens.sum()) == 448
    assert abs(float(edges[mutagens].mean()) - 11.0) < 0.05
    assert float(edges[~mutagens].sum()) == 0
    start = time.perf_counter()
    datasets.load("mutag0")
    assert time.perf_counter() - start < 2


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "graphs", "nodes", "features", "classes"),
    [("nci1", 4110, None, 37, 2), ("citeseer", 1, 3312, 3703, 6), ("planetoid:CiteSeer", 1, 3327, 3703, 6)],
)
def test_real_sizes(name, graphs, nodes, features, classes):
    found = datasets.statistics(name)
    assert (found["graphs"], found["features"], found["classes"]) == (graphs, features, classes)
    assert nodes is None or found["nodes"] == nodes


@pytest.mark.data
@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_raw_file_is_named(cache, tmp_path, damage):
    raw = tmp_path / "TUDataset" / "NCI1" / "raw"
    shutil.copytree(Path(ROOT) / "TUDataset" / "NCI1" / "raw", raw)
    raw.chmod(0o755)
    path = raw / "NCI1_node_labels.txt"
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(content[:1000] if damage == "truncated" else content[:-2] + b"9\n")
    with pytest.raises(CF2Error, match=r"NCI1_node_labels\.txt.*corrupted or truncated"):
        datasets.load("nci1", root=tmp_path)


@pytest.mark.data
def test_citeseer_explains_the_first_200_test_nodes():
    dataset = datasets.load("citeseer")
    _, test = datasets.split(dataset, 0)
    chosen = datasets.instances_to_explain(dataset, test, torch.zeros(len(dataset), dtype=torch.long))
    assert torch.equal(chosen, test[:200])
    assert dataset.truth(0) is None
