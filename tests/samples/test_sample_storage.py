"""Raw files are found, checked, downloaded whole or not at all, and read again from the cache."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest
import torch

from cf2 import storage as whole_files
from cf2.errors import CF2Error
from cf2.samples import citations, molecules, storage
from cf2.samples import registry as datasets

ROOT = os.environ.get("CF2_DATA", "")


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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def download_from(monkeypatch, url):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("torch_geometric.datasets.TUDataset.url", url)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid.url", url)


@pytest.fixture
def offline(monkeypatch):
    download_from(monkeypatch, "http://127.0.0.1:9")  # nobody listens on this port


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A directory that downloads come from."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    download_from(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_cache_is_where_the_system_says_and_the_data_where_the_user_says(cache, tmp_path, monkeypatch):
    assert storage.cache_directory() == cache == storage.data_root(None)
    monkeypatch.setenv("CF2_DATA", str(tmp_path / "mine"))
    assert storage.data_root(None) == tmp_path / "mine"
    assert storage.data_root(tmp_path / "given") == tmp_path / "given"
    assert storage.cache_directory() == cache
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert storage.cache_directory().name == "cf2"
    assert storage.cache_directory().is_relative_to(Path.home())


def test_an_archive_is_downloaded_once_and_quietly(cache, tmp_path, served, caplog, monkeypatch):
    raw = raw_tu(tmp_path / "data")
    shutil.copytree(raw, tmp_path / "zip" / "TINY")
    shutil.make_archive(str(served / "TINY"), "zip", tmp_path / "zip")
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    level = pooch.get_logger().level
    first = datasets.load("tu:TINY")
    (served / "TINY.zip").unlink()
    assert datasets.load("tu:TINY").fingerprint() == first.fingerprint()
    assert first.fingerprint() == datasets.load("tu:TINY", root=tmp_path / "data").fingerprint()
    kept = cache / "TUDataset" / "TINY" / "raw"
    assert sorted(path.name for path in kept.iterdir()) == sorted(path.name for path in raw.iterdir())
    assert sorted(path.name for path in cache.iterdir()) == ["TUDataset", "processed"]
    assert pooch.get_logger().level == level != logging.ERROR
    assert not caplog.records


FAULTS = ("unreachable", "absent", "no archive", "incomplete", "another file", "another archive")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_download_is_one_error_and_leaves_nothing(cache, tmp_path, served, monkeypatch, fault):
    name, first = "nci1", "NCI1_A.txt"
    if fault == "unreachable":
        download_from(monkeypatch, "http://127.0.0.1:9")
    elif fault == "no archive":
        (served / "NCI1.zip").write_bytes(b"moved")
    elif fault == "another file":
        name, first = "citeseer", "ind.citeseer.x"
        for file in citations.DIGESTS["CiteSeer"]:
            (served / file).write_bytes(b"moved")
    elif fault != "absent":
        raw = raw_tu(tmp_path / "data", "NCI1")
        if fault == "incomplete":
            (raw / "NCI1_graph_labels.txt").unlink()
        shutil.copytree(raw, tmp_path / "zip" / "NCI1")
        shutil.make_archive(str(served / "NCI1"), "zip", tmp_path / "zip")
    with pytest.raises(CF2Error, match=rf"raw file .*{first}.*could not be downloaded \(.+\).*Put .*CF2_DATA"):
        datasets.load(name, root=tmp_path / "nowhere")
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_a_cache_that_cannot_be_written_is_one_error(tmp_path, served, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CF2Error, match="could not be downloaded"):
        datasets.load("nci1", root=tmp_path)
    raw_tu(tmp_path / "data")
    assert datasets.load("tu:TINY", root=tmp_path / "data").labels.tolist() == [0, 1]


def test_a_file_that_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    for path in (tmp_path / "taken", Path(__file__) / "below"):
        with pytest.raises(CF2Error, match=f"Expected to write {path}"):
            whole_files.write_bytes(path, b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


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
def test_a_second_load_does_not_read_the_molecules_again(monkeypatch):
    first = datasets.load("mutag0").fingerprint()
    monkeypatch.setattr(molecules, "benzene_nitro_edges", None)
    assert datasets.load("mutag0").fingerprint() == first


@pytest.mark.data
def test_a_download_of_single_files_gives_the_same_data(cache, served):
    for path in (Path(ROOT) / "Planetoid" / "CiteSeer" / "raw").iterdir():
        shutil.copyfile(path, served / path.name)
    assert datasets.load("citeseer").fingerprint() == datasets.load("citeseer", root=ROOT).fingerprint()
    assert len(list((cache / "Planetoid" / "CiteSeer" / "raw").iterdir())) == 8


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
