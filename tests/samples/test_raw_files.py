"""Raw files are found, downloaded whole or not at all, checked and kept; damaged, absurd or hostile ones are one error
each: nothing runs, crashes or hangs."""

from __future__ import annotations

import logging
import os
import pickle
import random
import shutil
import threading
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pytest
import torch
from scipy import sparse

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import storage
from toys import tried

ROOT = Path(os.environ.get("CF2_DATA", ""))


@pytest.fixture(autouse=True)
def alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CF2_DATA", raising=False)


# -- toys -----------------------------------------------------------------------------------------------------

WORDS, PAPERS, TESTS = 5, 9, 4
X = (np.random.default_rng(0).random((PAPERS, WORDS)) < 0.4).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, PAPERS)


def planetoid(folder: Path, protocol: int = 4) -> Path:
    """Nine papers in a ring, the last four of them for testing, in files as Planetoid has them."""
    raw = folder / "Planetoid" / "Toy" / "raw"
    raw.mkdir(parents=True)
    train, first, classes = 3, PAPERS - TESTS, np.eye(3, dtype=np.int32)[Y]
    order = [first + place for place in (2, 0, 3, 1)]
    graph = {node: [(node + 1) % PAPERS, (node - 1) % PAPERS, (node + 1) % PAPERS, node] for node in range(PAPERS)}
    parts = {"x": X[:train], "allx": X[:first], "tx": X[order]}
    parts |= {"y": classes[:train], "ally": classes[:first], "ty": np.asfortranarray(classes[order])}
    for part, values in parts.items():
        stored = sparse.csr_matrix(values) if part.endswith("x") else values
        (raw / f"ind.toy.{part}").write_bytes(pickle.dumps(stored, protocol))
    (raw / "ind.toy.graph").write_bytes(pickle.dumps(defaultdict(list, graph), protocol))
    (raw / "ind.toy.test.index").write_text("".join(f"{node}\n" for node in order))
    return raw


def tu(folder: Path, name: str = "TINY") -> Path:
    """A path of three nodes, one edge, and a node alone, in files as TUDataset has them."""
    raw = folder / "TUDataset" / name / "raw"
    raw.mkdir(parents=True)
    (raw / f"{name}_A.txt").write_text("1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n")
    (raw / f"{name}_graph_indicator.txt").write_text("1\n1\n1\n2\n2\n3\n")
    (raw / f"{name}_graph_labels.txt").write_text("7\n9\n7\n")
    (raw / f"{name}_node_labels.txt").write_text("0\n1\n2\n0\n2\n1\n")
    (raw / f"{name}_edge_labels.txt").write_text("0\n0\n1\n1\n0\n0\n")
    (raw / f"{name}_node_attributes.txt").write_text("0.5, 1\n1, 2\n2, 3\n0, 1\n2, 2.25\n1, 1e3\n")
    return raw


# -- where files are found ------------------------------------------------------------------------------------


def download_from(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("torch_geometric.datasets.TUDataset.url", url)
    monkeypatch.setattr("torch_geometric.datasets.Planetoid.url", url)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    download_from(monkeypatch, "http://127.0.0.1:9")  # nobody listens on this port


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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


def serve_archive(raw: Path, served: Path, name: str) -> None:
    shutil.copytree(raw, served.parent / "zip" / name)
    shutil.make_archive(str(served / name), "zip", served.parent / "zip")


def test_the_cache_is_where_the_system_says_and_the_data_where_the_user_says(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.cache_directory() == cache == storage.data_root(None)
    monkeypatch.setenv("CF2_DATA", str(tmp_path / "mine"))
    assert storage.data_root(None) == tmp_path / "mine"
    assert storage.data_root(tmp_path / "given") == tmp_path / "given"
    assert storage.cache_directory() == cache
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert storage.cache_directory().name == "cf2"
    assert storage.cache_directory().is_relative_to(Path.home())
    with pytest.raises(CF2Error, match="directory for the raw files"):
        datasets.load("nci1", root="~nobody-of-this-name/data")


def test_an_archive_is_downloaded_once_and_quietly(
    cache: Path, tmp_path: Path, served: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tu(tmp_path / "data")
    serve_archive(raw, served, "TINY")
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    level = pooch.get_logger().level
    first = datasets.load("tu:TINY")
    (served / "TINY.zip").unlink()
    assert datasets.load("tu:TINY").fingerprint() == first.fingerprint()
    assert first.fingerprint() == datasets.load("tu:TINY", root=tmp_path / "data").fingerprint()
    kept = cache / "TUDataset" / "TINY" / "raw"
    assert sorted(path.name for path in kept.iterdir()) == sorted(path.name for path in raw.iterdir())
    assert sorted(path.name for path in cache.iterdir()) == ["TUDataset"]
    assert pooch.get_logger().level == level != logging.ERROR
    assert not caplog.records


FAULTS = ("unreachable", "absent", "no archive", "incomplete", "another file", "another archive")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failed_download_is_one_error_and_leaves_nothing(
    cache: Path, tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    name, first = "nci1", "NCI1_A.txt"
    if fault == "unreachable":
        download_from(monkeypatch, "http://127.0.0.1:9")
    elif fault == "no archive":
        (served / "NCI1.zip").write_bytes(b"moved")
    elif fault == "another file":
        name, first = "citeseer", "ind.citeseer.x"
        for file in storage.known_digests("Planetoid", "CiteSeer"):
            (served / file).write_bytes(b"moved")
    elif fault != "absent":
        raw = tu(tmp_path / "data", "NCI1")
        if fault == "incomplete":
            (raw / "NCI1_graph_labels.txt").unlink()
        serve_archive(raw, served, "NCI1")
    with pytest.raises(CF2Error, match=rf"raw file .*{first}.*could not be downloaded \(.+\).*Put .*CF2_DATA"):
        datasets.load(name, root=tmp_path / "nowhere")
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_a_cache_that_cannot_be_written_is_one_error(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CF2Error, match="could not be downloaded"):
        datasets.load("nci1", root=tmp_path)
    tu(tmp_path / "data")
    assert datasets.load("tu:TINY", root=tmp_path / "data").labels.tolist() == [0, 1, 0]


def test_an_archive_that_would_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "TINY.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("TINY/TINY_A.txt", b"0" * 100_000)
    monkeypatch.setattr(storage, "MAX_FILE_BYTES", 99_999)
    with pytest.raises(ValueError, match="would take 100,000 bytes"):
        storage._unzip(str(tmp_path / "TINY.zip"), "download", None)
    assert not (tmp_path / "TINY").exists()


def test_a_missing_raw_file_is_named_with_what_to_do(tmp_path: Path, offline: None) -> None:
    with pytest.raises(CF2Error, match=r"Mutagenicity_A\.txt.*CF2_DATA"):
        datasets.load("mutag0", root=tmp_path)
    (tu(tmp_path / "data") / "TINY_graph_labels.txt").unlink()
    with pytest.raises(CF2Error, match=r"TINY_graph_labels\.txt.*is missing"):
        datasets.load("tu:TINY", root=tmp_path / "data")


def test_the_overview_lists_sets_whose_files_are_missing(offline: None) -> None:
    rows = {row["name"]: row for row in datasets.overview()}
    assert list(rows) == datasets.names()
    assert "Mutagenicity_A.txt" in rows["mutag"]["problem"]
    assert rows["ba-shapes"]["nodes"] == 700


@pytest.mark.data
def test_a_download_of_single_files_gives_the_same_data(cache: Path, served: Path) -> None:
    for path in (ROOT / "Planetoid" / "CiteSeer" / "raw").iterdir():
        shutil.copyfile(path, served / path.name)
    assert datasets.load("citeseer").fingerprint() == datasets.load("citeseer", root=ROOT).fingerprint()
    assert len(list((cache / "Planetoid" / "CiteSeer" / "raw").iterdir())) == 8


@pytest.mark.data
@pytest.mark.parametrize("damage", ["truncated", "changed"])
def test_a_damaged_raw_file_is_named(tmp_path: Path, damage: str) -> None:
    raw = tmp_path / "TUDataset" / "NCI1" / "raw"
    shutil.copytree(ROOT / "TUDataset" / "NCI1" / "raw", raw)
    raw.chmod(0o755)
    path = raw / "NCI1_node_labels.txt"
    path.chmod(0o644)
    content = path.read_bytes()
    path.write_bytes(content[:1000] if damage == "truncated" else content[:-2] + b"9\n")
    with pytest.raises(CF2Error, match=r"NCI1_node_labels\.txt.*corrupted or truncated"):
        datasets.load("nci1", root=tmp_path)


# -- kept graphs ---------------------------------------------------------------------------------------


def test_kept_graphs_are_the_same_and_made_again_after_any_change(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "raw").write_text("a")
    graphs, calls = datasets.load("ba-2motifs").graphs[:5], []
    make = lambda: calls.append(1) or graphs  # noqa: E731
    for content, times in (("a", 1), ("a", 1), ("b", 2)):
        (tmp_path / "raw").write_text(content)
        for before, after in zip(graphs, storage.kept("toy", tmp_path / "raw", make), strict=True):
            assert all(torch.equal(before[key], after[key]) for key in ("x", "edge_index", "y", "truth"))
        assert len(calls) == times
    for path in (cache / "processed").iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert len(storage.kept("toy", tmp_path / "raw", make)) == 5
    assert len(calls) == 3


# -- Planetoid ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [3, 4])
def test_planetoid_is_read_paper_by_paper(tmp_path: Path, protocol: int) -> None:
    planetoid(tmp_path, protocol)
    found = datasets.load("planetoid:Toy", root=tmp_path).data
    assert np.array_equal(found.x, X)
    assert np.array_equal(found.y, Y)
    ring = {(a, (a + step) % PAPERS) for a in range(PAPERS) for step in (1, -1)}
    assert sorted(map(tuple, found.edge_index.t().tolist())) == sorted(ring)


@pytest.mark.data
@pytest.mark.parametrize("name", ["Cora", "CiteSeer"])
def test_the_real_files_are_read_as_torch_geometric_reads_them(name: str) -> None:
    from torch_geometric.io import read_planetoid_data

    raw = ROOT / "Planetoid" / name / "raw"
    if not raw.is_dir():
        pytest.skip(f"{name} is not there")
    found, same = datasets.load(f"planetoid:{name}", root=ROOT).data, read_planetoid_data(str(raw), name.lower())
    assert all(torch.equal(found[part], same[part]) for part in ("x", "y", "edge_index"))


def matrix(**changes: Any) -> bytes:
    """A pickled sparse matrix of five papers with parts that do not fit together."""
    made = sparse.csr_matrix(np.eye(PAPERS - TESTS, WORDS, dtype=np.float32))
    made.__dict__.update(changes)
    return pickle.dumps(made, 3)


class Hostile:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


def int32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


MATRICES: dict[str, tuple[bytes, str]] = {
    "column too large": (matrix(indices=int32(0, 1, 2, 3, 10**6)), "indices"),
    "column negative": (matrix(indices=int32(0, 1, -2, 3, 4)), "indices"),
    "rows out of order": (matrix(indptr=int32(0, 4, 2, 3, 4, 5)), "non-decreasing"),
    "rows beyond the values": (matrix(indptr=int32(0, 1, 2, 3, 4, 10**6)), "size of index"),
    "no values": (matrix(data=None), "a matrix of numbers"),
    "10^12 papers": (matrix(_shape=(10**12, 5)), "index pointer size"),
    "10^12 words": (matrix(_shape=(5, 10**12)), "1,000,000,000,000 features"),
    "no number": (matrix(data=np.full(5, np.nan, np.float32)), "finite numbers"),
    "objects": (pickle.dumps(np.array([{}, []], dtype=object), 4), "a matrix of numbers"),
    "lists that unfold": (pickle.dumps([[[0] * 99] * 99] * 99, 4), "a matrix of numbers"),
    "lists in a sparse matrix": (matrix(data=[[0] * 99] * 99), "a matrix of numbers"),
    "one dimension": (pickle.dumps(np.zeros(3), 4), "1 dimensions"),
    "code": (pickle.dumps(Hostile(os.mkdir, "ran"), 2), "would run posix.mkdir"),
    "code in a list": (pickle.dumps([Hostile(eval, "1")], 4), "would run builtins.eval"),
    "code of numpy": (pickle.dumps(Hostile(np.load, "x"), 4), "would run numpy.load"),
    "a hidden place in the memory": (b"\x80\x02K\x01r\xff\xff\xff\x7f.", "a matrix"),
    "a claim of 2^40 bytes": (b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".", "arrays and nothing else"),
    "a persistent id": (b"Pid\n.", "arrays and nothing else"),
    "text": (b"404: not found", "arrays and nothing else"),
}


@pytest.mark.parametrize("case", MATRICES)
def test_a_matrix_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    content, says = MATRICES[case]
    (planetoid(tmp_path) / "ind.toy.allx").write_bytes(content)
    with pytest.raises(CF2Error) as error:
        datasets.load("planetoid:Toy", root=tmp_path)
    assert says in str(error.value)
    assert "ind.toy.allx" in str(error.value) or "nodes" in says or "features" in says
    assert not (tmp_path / "ran").exists()


NEIGHBOURS: dict[str, tuple[Any, str]] = {
    "too large": ({0: [PAPERS]}, "among the papers 0 to 8"),
    "negative": ({-1: [0]}, "among the papers 0 to 8"),
    "beyond 64 bits": ({0: [2**70]}, "among the papers 0 to 8"),
    "a word": ({0: ["1"]}, "among the papers 0 to 8"),
    "nine million edges in a few bytes": (dict.fromkeys(range(3000), [1] * 3000), "more than the file holds"),
    "no list": ({0: 1}, "the neighbours of each paper"),
    "a list": ([[0, 1]], "the neighbours of each paper"),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_citations_that_cannot_be_are_refused(tmp_path: Path, case: str) -> None:
    graph, says = NEIGHBOURS[case]
    (planetoid(tmp_path) / "ind.toy.graph").write_bytes(pickle.dumps(graph, 2))
    with pytest.raises(CF2Error) as error:
        datasets.load("planetoid:Toy", root=tmp_path)
    assert says in str(error.value)
    assert "ind.toy.graph" in str(error.value)


WRONG_TESTS = ["", "5\n6\n7\n", "5\n6\n7\n7\n", "4\n6\n7\n8\n", "-1\n6\n7\n8\n", "5\n6\n7\nx\n", "5\n6\n7\n1e3\n"]


@pytest.mark.parametrize("text", [*WRONG_TESTS, "5 6\n7 8\n", "5\n6\n7\n1000000000000\n"])
def test_a_list_of_test_papers_that_cannot_be_is_refused(tmp_path: Path, text: str) -> None:
    (planetoid(tmp_path) / "ind.toy.test.index").write_text(text)
    with pytest.raises(CF2Error, match=r"ind\.toy\.test\.index|1,000,000,000,001 nodes"):
        datasets.load("planetoid:Toy", root=tmp_path)


# -- TUDataset ------------------------------------------------------------------------------------------------


def test_a_tu_set_is_read_as_torch_geometric_reads_it_and_its_root_may_be_read_only(tmp_path: Path) -> None:
    from torch_geometric.io import read_tu_data

    raw = tu(tmp_path)
    before = sorted(path.name for path in raw.iterdir())
    raw.chmod(0o555)
    whole, slices, _ = read_tu_data(str(raw), "TINY")
    found = datasets.load("tu:TINY", root=tmp_path)
    raw.chmod(0o755)
    assert sorted(path.name for path in raw.iterdir()) == before
    assert [g.num_nodes for g in found.graphs] == [3, 2, 1]
    assert found.labels.tolist() == [0, 1, 0]
    assert torch.equal(torch.cat([g.x for g in found.graphs]), whole.x)
    assert torch.equal(torch.cat([g.edge_index for g in found.graphs], 1), whole.edge_index)
    assert slices["edge_index"].diff().tolist() == [g.edge_index.shape[1] for g in found.graphs][:2]


def test_the_last_line_counts_without_a_line_end(tmp_path: Path) -> None:
    raw = tu(tmp_path)
    before = datasets.load("tu:TINY", root=tmp_path).fingerprint()
    for path in raw.iterdir():
        path.write_text(path.read_text().rstrip())
    assert datasets.load("tu:TINY", root=tmp_path).fingerprint() == before


LINES: dict[str, tuple[str, str, str]] = {
    "node 0": ("A", "0, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n", "two of the nodes 1 to 6 on each line"),
    "a node too many": ("A", "1, 2\n2, 1\n2, 7\n3, 2\n4, 5\n5, 4\n", "something else on line 3"),
    "beyond 64 bits": ("A", f"1, {10**30}\n" * 6, "numbers, as many on each line"),
    "two graphs": ("A", "1, 2\n2, 1\n2, 4\n3, 2\n4, 5\n5, 4\n", "two nodes of the same graph"),
    "one end": ("A", "1\n2\n", "of 2 numbers each"),
    "ragged": ("A", "1, 2\n2\n", "numbers, as many on each line"),
    "a half": ("A", "1, 2.5\n", "numbers, as many on each line"),
    "no edges": ("A", "", "an empty file"),
    "graph 10^12": ("graph_indicator", "1\n1\n1\n2\n2\n1000000000000\n", "or the next one"),
    "graph 0": ("graph_indicator", "0\n1\n1\n2\n2\n3\n", "from 1 on"),
    "fewer nodes": ("graph_indicator", "1\n1\n1\n2\n", "two of the nodes 1 to 4"),
    "fewer labels": ("graph_labels", "7\n", "3 lines of 1 numbers each"),
    "label 10^15": ("node_labels", "0\n1\n2\n0\n2\n1000000000000000\n", "1,000,000,000,000,001 features"),
    "fewer node labels": ("node_labels", "0\n", "6 lines"),
    "infinite": (
        "node_attributes",
        "1, 1\n" * 5 + "1, 1e999\n",
        "finite numbers on each line, but got something else on line 6",
    ),
    "numbers to predict": ("graph_attributes", "0.5\n1.5\n2\n", "a regression set"),
}


@pytest.mark.parametrize("case", LINES)
def test_lines_that_cannot_be_are_refused(tmp_path: Path, case: str) -> None:
    part, text, says = LINES[case]
    (tu(tmp_path) / f"TINY_{part}.txt").write_text(text)
    with pytest.raises(CF2Error) as error:
        datasets.load("tu:TINY", root=tmp_path)
    assert says in str(error.value)


# -- files that are no files, and damage at random ------------------------------------------------------------

MAKERS: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "planetoid": (planetoid, "planetoid:Toy", "ind.toy.allx"),
    "list of tests": (planetoid, "planetoid:Toy", "ind.toy.test.index"),
    "tu": (tu, "tu:TINY", "TINY_A.txt"),
}
INSTEAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path),
    "nothing": lambda path: path.write_bytes(b""),
    "other letters": lambda path: path.write_bytes(b"\xff\xfe1, 2\n\x00"),
    "a terabyte of zeros": lambda path: path.touch() or os.truncate(path, 1 << 40),
}


@pytest.mark.parametrize("instead", INSTEAD)
@pytest.mark.parametrize("case", MAKERS)
def test_what_is_no_such_file_is_named_and_nothing_hangs(tmp_path: Path, case: str, instead: str) -> None:
    make, name, file = MAKERS[case]
    path = make(tmp_path) / file
    path.unlink(missing_ok=True)
    INSTEAD[instead](path)
    with pytest.raises(CF2Error) as error:
        datasets.load(name, root=tmp_path)
    assert file in str(error.value)


def damage(content: bytes, rng: random.Random) -> bytes:
    """Bytes changed, left out, added or doubled."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 3))):
        at, kind = rng.randrange(len(changed) + 1), rng.randrange(5)
        if kind <= 1 and at < len(changed):
            changed[at] = rng.randrange(256) if kind else changed[at] ^ (1 << rng.randrange(8))
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[at:at] = rng.choice((b"9" * 12, b"-", b"\n", b"\xff", bytes(8), rng.randbytes(4)))
        else:
            changed[at:at] = changed[max(0, at - 20) : at]
        changed = changed or bytearray(b" ")
    return bytes(changed)


def sound(dataset: datasets.Dataset) -> None:
    """Whatever the changed numbers say now, they refer to what is there."""
    for graph in dataset.graphs:
        assert bool(torch.isfinite(graph.x).all())
        assert graph.x.shape[1] == dataset.num_features
        ends = graph.edge_index
        assert not ends.numel() or 0 <= int(ends.min()) <= int(ends.max()) < len(graph.x)
    assert 0 <= int(dataset.labels.min()) <= int(dataset.labels.max()) < dataset.num_classes


def attack(folder: Path, family: str, seed: int) -> bool:
    """Damage one raw file; whether it is refused. A result must be sound; anything but a CF2Error is a failure."""
    rng = random.Random(f"{family} {seed}")
    make, name, _ = MAKERS[family]
    path = rng.choice(sorted(make(folder).iterdir()))
    path.write_bytes(damage(path.read_bytes(), rng))
    try:
        sound(datasets.load(name, root=folder))
    except CF2Error:
        return True
    return False


@pytest.mark.parametrize("family", ["planetoid", "tu"])
@tried(few=60, many=1000)
def test_damaged_files_are_refused_or_read_as_what_they_say(tmp_path: Path, family: str, seeds: range) -> None:
    refused = [attack(tmp_path / str(seed), family, seed) for seed in seeds]
    assert 0.3 * len(seeds) < sum(refused) < len(seeds)
