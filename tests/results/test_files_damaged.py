"""Files of explanations and of trained explainers from strangers: as they were written, or one error."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import cf2
from cf2.errors import CF2Error
from cf2.methods.trained import Trained
from cf2.results import files as limits
from cf2.results.explanations import same_results
from toys import NodeNet, random_graph


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    model, data = NodeNet("sum", seed=1), random_graph(30, 45, seed=6)
    return cf2.explain(model, data, nodes=[3, 7, 9, 12], units=("edges", "features"), method="gradient", k=4)


TRAINED = Trained("gem", {"k": 3}, {"w": torch.arange(12.0).view(3, 4), "b": torch.tensor([0.5])}, {"instances": 8})

# -- files that are no files, or far too large ------------------------------------------------------------------


def as_directory(path: Path) -> None:
    path.mkdir()


def as_loop(path: Path) -> None:
    path.symlink_to(path)


def as_nothing(path: Path) -> None:
    path.write_bytes(b"")


def as_zeros(path: Path) -> None:
    """A file that claims a terabyte and holds nothing."""
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


@pytest.mark.parametrize("instead", [os.mkfifo, as_directory, as_loop, as_nothing, as_zeros])
@pytest.mark.parametrize(
    ("name", "load"), [("x.json", cf2.load), ("x.parquet", cf2.load), ("x.safetensors", cf2.load_trained)]
)
def test_what_is_no_such_file_is_named_and_nothing_hangs(
    tmp_path: Path, name: str, load: Callable[[Path], Any], instead: Callable[[Path], None]
) -> None:
    instead(tmp_path / name)
    with pytest.raises(CF2Error) as error:
        load(tmp_path / name)
    assert name in str(error.value)


@pytest.mark.parametrize(
    ("limit", "says"),
    [("MOST_ROWS", "3 rows"), ("MOST_VALUES", "numbers in a column"), ("MOST_UNPACKED", "bytes unpacked")],
)
def test_a_parquet_file_is_refused_by_what_its_footer_claims(
    found: cf2.Explanations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, says: str
) -> None:
    path = found.save(tmp_path / "x.parquet")
    monkeypatch.setattr(limits, limit, 3)
    monkeypatch.setattr(pq.ParquetFile, "read", None)  # nothing of it is read
    with pytest.raises(CF2Error, match=says):
        cf2.load(path)


def test_a_million_times_the_same_number_takes_no_memory(
    found: cf2.Explanations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of one value repeated is a few bytes on the disk; its true length is refused before it is made."""
    path = found[:1].save(tmp_path / "x.parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index("selected")
    many = pa.array([np.zeros(2_000_000, bool)], type=table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), many), path, compression="zstd")
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(limits, "MOST_VALUES", 10**6)
    with pytest.raises(CF2Error, match="at most 1,000,000 numbers in a column"):
        cf2.load(path)


# -- other contents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("prediction", pa.array(["1"])),
        ("scores", pa.array([[1.0]], pa.list_(pa.float64()))),
        ("selected", pa.array([True])),
        ("key", pa.array([[["deep"]]])),
    ],
)
def test_columns_of_another_type_are_named(
    found: cf2.Explanations, tmp_path: Path, name: str, column: pa.Array
) -> None:
    path = found[:1].save(tmp_path / "x.parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index(name)
    pq.write_table(table.set_column(place, name, column), path)
    with pytest.raises(CF2Error, match=f"other columns: .*{name}"):
        cf2.load(path)


@pytest.mark.parametrize("drop", ["label", "units", "unit_ids"])
def test_columns_too_many_or_too_few_are_refused(found: cf2.Explanations, tmp_path: Path, drop: str) -> None:
    path = found.save(tmp_path / "x.parquet")
    table = pq.read_table(path)
    other = table.drop_columns([drop]) if drop in table.column_names else table.append_column(drop, table["label"])
    pq.write_table(other, path)
    with pytest.raises(CF2Error, match=f"other columns: {drop}"):
        cf2.load(path)


CHANGES: dict[str, dict[str, Any]] = {
    "a word for a verdict": {"sufficient": "yes"},
    "a number for a verdict": {"necessary": 1},
    "a truth value for a class": {"prediction": True},
    "no class": {"prediction": None},
    "a class that is not there": {"prediction": 9},
    "a negative class": {"prediction": -1},
    "other probabilities": {"probabilities_only": [0.5]},
    "a kind of unit that is not there": {"unit_names": ["edges"]},
    "numbers as names": {"unit_names": [1, 2]},
    "fewer scores": {"scores": []},
    "text as scores": {"scores": "many"},
    "no settings": {"settings": None},
    "a key of words": {"key": "three"},
    "an unknown field": {"colour": 1},
    "a list as status": {"status": []},
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_json_document_with_other_fields_is_refused(found: cf2.Explanations, tmp_path: Path, case: str) -> None:
    path = found.save(tmp_path / "x.json")
    stored = json.loads(path.read_text())
    stored["explanations"][1].update(CHANGES[case])
    path.write_text(json.dumps(stored))
    with pytest.raises(CF2Error, match="damaged or edited"):
        cf2.load(path)
    del stored["digest"]  # whoever edits a file can do that, too
    path.write_text(json.dumps(stored))
    with pytest.raises(CF2Error):
        cf2.load(path)


def test_a_file_without_a_digest_is_still_read(found: cf2.Explanations, tmp_path: Path) -> None:
    path = found.save(tmp_path / "x.json")
    stored = json.loads(path.read_text())
    del stored["digest"]
    path.write_text(json.dumps(stored))
    assert same_results(cf2.load(path), found)


def test_a_document_that_is_nested_without_end_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 200_000)
    with pytest.raises(CF2Error, match=r"x\.json"):
        cf2.load(tmp_path / "x.json")


@pytest.mark.parametrize(
    "about", ["[]", '{"format": 1}', "{", "[" * 100_000, '{"format": 1, "method": 3, "settings": {}, "facts": {}}']
)
def test_a_trained_explainer_with_another_header_is_one_error(tmp_path: Path, about: str) -> None:
    from safetensors.torch import save_file

    save_file(TRAINED.tensors, tmp_path / "x.safetensors", metadata={"cf2": about})
    with pytest.raises(CF2Error, match=r"x\.safetensors"):
        cf2.load_trained(tmp_path / "x.safetensors")


# -- at random --------------------------------------------------------------------------------------------------


def damage(content: bytes, rng: random.Random) -> bytes:
    """Bits and bytes changed, left out, added or moved."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 4))):
        at, kind = rng.randrange(len(changed)), rng.randrange(6)
        if kind <= 2:
            changed[at] = changed[at] ^ (1 << rng.randrange(8)) if kind else rng.randrange(256)
        elif kind == 3:
            changed = changed[:at] or bytearray(b" ")
        elif kind == 4:
            changed[at:at] = rng.randbytes(rng.choice((1, 4, 64)))
        else:
            changed[at : at + 8] = changed[: len(changed[at : at + 8])]
    return bytes(changed)


def read_back(kind: str, path: Path, found: cf2.Explanations) -> bool:
    """Whether a file is refused; if it is read, then as it was written."""
    try:
        if kind == "safetensors":
            back = cf2.load_trained(path)
            assert (back.method, back.settings, back.facts) == (TRAINED.method, TRAINED.settings, TRAINED.facts)
            assert all(torch.equal(back.tensors[name], value) for name, value in TRAINED.tensors.items())
        else:
            loaded = cf2.load(path)
            assert same_results(loaded, found)
            assert loaded.context == json.loads(json.dumps(found.context))
    except CF2Error:
        return True
    return False


def attack(kind: str, folder: Path, found: cf2.Explanations, seeds: range) -> int:
    """How many of the damaged files are refused."""
    path = folder / f"x.{kind}"
    content = (TRAINED.save(path) if kind == "safetensors" else found.save(path)).read_bytes()
    refused = 0
    for seed in seeds:
        path.write_bytes(damage(content, random.Random(f"{kind} {seed}")))
        refused += read_back(kind, path, found)
    return refused


KINDS = ("parquet", "json", "safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_or_read_as_it_was_written(
    found: cf2.Explanations, tmp_path: Path, kind: str
) -> None:
    assert 100 < attack(kind, tmp_path, found, range(150)) <= 150


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files(found: cf2.Explanations, tmp_path: Path, kind: str) -> None:
    assert 1000 < attack(kind, tmp_path, found, range(1000, 3000)) <= 2000
