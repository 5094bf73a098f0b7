"""Raw files are found, downloaded whole or not at all, and read only if they are the known ones: damaged, absurd or
hostile files are one error each, and nothing runs, crashes or hangs."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pooch
import pytest
import torch

from cf2.errors import CF2Error
from cf2.samples import registry as datasets
from cf2.samples import storage

ROOT = Path(os.environ.get("CF2_DATA", ""))


@pytest.fixture(autouse=True)
def alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CF2_DATA", raising=False)


FILES = {  # a path of three nodes, one edge, and a node alone, the last file without a line end
    "NCI1_A.txt": "1, 2\n2, 1\n2, 3\n3, 2\n3, 2\n3, 3\n4, 5\n5, 4\n",
    "NCI1_graph_indicator.txt": "1\n1\n1\n2\n2\n3\n",
    "NCI1_graph_labels.txt": "0\n1\n0\n",
    "NCI1_node_labels.txt": "1\n2\n3\n1\n3\n2",
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these were the files of NCI1."""
    digests = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in FILES.items()}
    monkeypatch.setattr(storage, "known_digests", lambda family, name: digests)


def write(folder: Path) -> Path:
    """The directory of the raw files, as torch_geometric lays it out."""
    raw = folder / "TUDataset" / "NCI1" / "raw"
    raw.mkdir(parents=True)
    for file, text in FILES.items():
        (raw / file).write_text(text)
    return raw


# -- where files are found ------------------------------------------------------------------------------------


def download_from(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(storage.URLS, "TUDataset", url + "/{name}.zip")
    monkeypatch.setitem(storage.URLS, "Planetoid", url + "/{file}")


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


def serve_archive(raw: Path, served: Path) -> None:
    shutil.copytree(raw, served.parent / "zip" / "NCI1")
    shutil.make_archive(str(served / "NCI1"), "zip", served.parent / "zip")


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
    cache: Path, tmp_path: Path, served: Path, tiny: None, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = write(tmp_path / "data")
    serve_archive(raw, served)
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    level = pooch.get_logger().level
    first = datasets.load("nci1")
    (served / "NCI1.zip").unlink()
    assert datasets.load("nci1").fingerprint() == first.fingerprint()
    assert first.fingerprint() == datasets.load("nci1", root=tmp_path / "data").fingerprint()
    kept = cache / "TUDataset" / "NCI1" / "raw"
    assert sorted(path.name for path in kept.iterdir()) == sorted(path.name for path in raw.iterdir())
    assert sorted(path.name for path in cache.iterdir()) == ["TUDataset"]
    assert pooch.get_logger().level == level != logging.ERROR
    assert not caplog.records


FAULTS = ("unreachable", "absent", "no archive", "incomplete", "far too large", "another file", "another archive")


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
        raw = write(tmp_path / "data")
        if fault == "incomplete":
            (raw / "NCI1_graph_labels.txt").unlink()
        elif fault == "far too large":
            monkeypatch.setattr(storage, "MAX_FILE_BYTES", 50)
        serve_archive(raw, served)
    reason = r"NCI1\.zip would take" if fault == "far too large" else ".+"
    with pytest.raises(CF2Error, match=rf"raw file .*{first}.*not be downloaded \({reason}.*\).*Put .*CF2_DATA"):
        datasets.load(name, root=tmp_path / "nowhere")
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_a_cache_that_cannot_be_written_is_one_error(
    tmp_path: Path, served: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CF2Error, match="could not be downloaded"):
        datasets.load("nci1", root=tmp_path)
    write(tmp_path / "data")
    assert datasets.load("nci1", root=tmp_path / "data").labels.tolist() == [0, 1, 0]


def test_a_missing_raw_file_is_named_with_what_to_do(tmp_path: Path, offline: None) -> None:
    with pytest.raises(CF2Error, match=r"Mutagenicity_A\.txt.*CF2_DATA"):
        datasets.load("mutag0", root=tmp_path)
    (write(tmp_path / "data") / "NCI1_graph_labels.txt").unlink()
    with pytest.raises(CF2Error, match=r"NCI1_graph_labels\.txt.*is missing"):
        datasets.load("nci1", root=tmp_path / "data")


@pytest.mark.data
def test_a_download_of_single_files_gives_the_same_data(cache: Path, served: Path) -> None:
    for path in (ROOT / "Planetoid" / "CiteSeer" / "raw").iterdir():
        shutil.copyfile(path, served / path.name)
    assert datasets.load("citeseer").fingerprint() == datasets.load("citeseer", root=ROOT).fingerprint()
    assert len(list((cache / "Planetoid" / "CiteSeer" / "raw").iterdir())) == 8


# -- what is read ---------------------------------------------------------------------------------------------


def test_a_set_is_read_graph_by_graph_and_its_root_may_be_read_only(tmp_path: Path, tiny: None) -> None:
    raw = write(tmp_path)
    before = sorted(path.name for path in raw.iterdir())
    raw.chmod(0o555)
    found = datasets.load("nci1", root=tmp_path)
    raw.chmod(0o755)
    assert sorted(path.name for path in raw.iterdir()) == before
    assert found.labels.tolist() == [0, 1, 0]
    assert [g.x.argmax(1).tolist() for g in found.graphs] == [[0, 1, 2], [0, 2], [1]]
    ends = [g.edge_index.t().tolist() for g in found.graphs]
    assert ends == [[[0, 1], [1, 0], [1, 2], [2, 1]], [[0, 1], [1, 0]], []]


@pytest.mark.data
@pytest.mark.parametrize(("name", "member"), [("mutag", "Mutagenicity"), ("nci1", "NCI1")])
def test_the_real_files_are_read_as_torch_geometric_reads_them(name: str, member: str) -> None:
    from torch_geometric.io import read_tu_data

    found = datasets.load(name, root=ROOT).graphs
    same, slices, _ = read_tu_data(str(ROOT / "TUDataset" / member / "raw"), member)
    for part, dim in (("x", 0), ("y", 0), ("edge_index", 1)):
        assert torch.equal(torch.cat([graph[part] for graph in found], dim), same[part])
        assert slices[part].diff().tolist() == [graph[part].shape[dim] for graph in found]
    if "bond" in found[0]:
        assert torch.equal(torch.cat([graph.bond for graph in found]), same.edge_attr.argmax(1) + 1)


@pytest.mark.data
def test_planetoids_reader_leaves_the_filters_of_warnings_alone() -> None:
    import warnings

    before = list(warnings.filters)
    assert datasets.load("citeseer", root=ROOT).data.num_nodes == 3312
    assert warnings.filters == before


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.data
def test_a_pickle_that_is_not_the_known_one_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    raw = tmp_path / "Planetoid" / "CiteSeer" / "raw"
    shutil.copytree(ROOT / "Planetoid" / "CiteSeer" / "raw", raw)
    raw.chmod(0o755)
    (raw / "ind.citeseer.graph").chmod(0o644)
    (raw / "ind.citeseer.graph").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(CF2Error, match=r"ind\.citeseer\.graph to have SHA-256"):
        datasets.load("citeseer", root=tmp_path)
    assert not (tmp_path / "ran").exists()


INSTEAD: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
    "a loop": lambda path: path.symlink_to(path),
    "nothing": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_text(FILES["NCI1_A.txt"][:-2]),
    "changed": lambda path: path.write_text(FILES["NCI1_A.txt"].replace("4", "1")),
    "a terabyte of zeros": lambda path: path.touch() or os.truncate(path, 1 << 40),
}


@pytest.mark.parametrize("instead", INSTEAD)
def test_what_is_not_the_known_file_is_named_and_nothing_hangs(tmp_path: Path, tiny: None, instead: str) -> None:
    path = write(tmp_path) / "NCI1_A.txt"
    path.unlink()
    INSTEAD[instead](path)
    with pytest.raises(CF2Error, match=r"NCI1_A\.txt"):
        datasets.load("nci1", root=tmp_path)
