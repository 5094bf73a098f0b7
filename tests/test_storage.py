"""Files are whole or as they were before: full disks, directories that cannot be written, files in the way."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cf2 import storage as whole_files
from cf2.errors import CF2Error
from cf2.methods.trained import Trained
from cf2.samples import registry as datasets
from cf2.samples import training
from cf2.storage import check_place, fingerprint, read_json, write_bytes, write_json, write_together
from report.explained_toys import explained, first_edge

FOUND = explained(first_edge, "random", [0, 1, 2])


def a_model() -> tuple[Any, Any]:
    return training.train(datasets.load("tree-cycles"), epochs=1, hidden=4)


def a_trained() -> Any:
    return Trained("gem", {"k": 2}, {"w": torch.ones(3)})


WRITERS: dict[str, Callable[[Path], Any]] = {
    "found.parquet": FOUND.save,
    "found.json": FOUND.save,
    "report.html": FOUND.report,
    "trained.safetensors": a_trained().save,
    "model.safetensors": lambda path: training.save(path, *a_model()),
    "plain.json": lambda path: write_json(path, {"a": 1}),
}


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(params=WRITERS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that is there already, with what belongs to it."""
    path = tmp_path / request.param
    WRITERS[request.param](path)
    return path


def contents(place: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in place.iterdir()}


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    before = contents(file.parent)
    monkeypatch.setattr(whole_files.os, call, full)
    with pytest.raises(CF2Error, match=r"Expected to write .*No space left on device\. Free disk space") as error:
        WRITERS[file.name](file)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    assert contents(file.parent) == before


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_in_the_way_is_said_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(CF2Error, match=r"file"):
        WRITERS[name](tmp_path / "file" / name)
    assert contents(tmp_path) == {"file": b"precious"}
    (tmp_path / "folder" / name).mkdir(parents=True)
    with pytest.raises(CF2Error, match=r"Expected (to write|the path of a file)"):
        WRITERS[name](tmp_path / "folder" / name)
    assert [p.name for p in (tmp_path / "folder").iterdir()] == [name]


def test_files_that_belong_together_appear_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them cannot be written, none of the old ones is replaced."""
    first, second = tmp_path / "a", tmp_path / "b"
    write_bytes(first, b"old")
    write_bytes(second, b"old")
    new: Callable[[Path], Any] = lambda partial: partial.write_bytes(b"new")  # noqa: E731
    for saves in ({first: new, second: full}, {first: full, second: new}):
        with pytest.raises(CF2Error):
            write_together(saves)
        assert contents(tmp_path) == {"a": b"old", "b": b"old"}
    write_together({first: new, second: new})
    assert contents(tmp_path) == {"a": b"new", "b": b"new"}


def test_weights_that_are_not_those_of_the_description_are_refused(tmp_path: Path) -> None:
    """As after a power cut between the two names, or a byte that was flipped: no shape tells them apart."""
    one, other = (training.save(tmp_path / name, *a_model()) for name in ("one", "other"))
    training.load(one)
    content = bytearray(one.read_bytes())
    content[-1] ^= 1
    for weights in (bytes(content), other.read_bytes()[:-4] + b"\0\0\0\0"):
        one.write_bytes(weights)
        with pytest.raises(CF2Error, match=r"hold the weights that one\.json describes, but got others, or damaged"):
            training.load(one)
    described = one.with_suffix(".json")
    described.write_text(described.read_text().replace("weights_sha256", "weights"))
    with pytest.raises(CF2Error, match=r"one\.json to be the description"):
        training.load(one)


def test_a_place_is_checked_before_the_work(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "deep" / "file")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(CF2Error, match="which is a file"):
        check_place(tmp_path / "file" / "below" / "deep")
    with pytest.raises(CF2Error, match="a directory"):
        check_place(tmp_path)


def test_reading_what_is_no_regular_file_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CF2Error, match="no regular file"):
        read_json(tmp_path / "pipe")
    (tmp_path / "deep").write_text("[" * 200_000)
    with pytest.raises(CF2Error, match="deep to hold"):
        read_json(tmp_path / "deep")


def test_a_fingerprint_is_of_the_bytes_in_their_order(tmp_path: Path) -> None:
    """Digests in the files of version 0.2 are of this form."""
    (tmp_path / "file").write_bytes(b"abc")
    true = hashlib.sha256(b"abc").hexdigest()
    for parts in (["abc"], [b"abc"], ["a", b"bc"], [tmp_path / "file"], [np.frombuffer(b"abc", np.int8)]):
        assert fingerprint(*parts) == true
    numbers = torch.arange(6.0).reshape(2, 3)
    assert fingerprint(numbers.t()) == fingerprint(numbers.t().contiguous().numpy()) != fingerprint(numbers)
    assert fingerprint(numbers.to_sparse()) == fingerprint(numbers)
    assert fingerprint(torch.zeros(0), "abc", digits=16) == true[:16]
    assert fingerprint({"b": 1, "a": [2]}) == fingerprint({"a": [2], "b": 1}) == fingerprint('{"a": [2], "b": 1}')
