"""Files of explanations and of trained explainers: read back exactly as they were written, or refused in one error."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cf2
from cf2.errors import CF2Error
from cf2.graphs.typed import Types
from cf2.methods.trained import Trained
from cf2.options import Key
from cf2.results import files
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from toys import NodeNet, random_graph, same_results, tried

TRAINED = Trained("gem", {"k": 3}, {"w": torch.arange(12.0).view(3, 4), "b": torch.tensor([0.5])}, {"instances": 8})


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    model, data = NodeNet("sum", seed=1), random_graph(30, 45, seed=6)
    return cf2.explain(model, data, nodes=[3, 7, 9, 12], units=("edges", "features"), method="gradient", k=4)


def assert_same(one: object, other: object) -> None:
    """Field by field: values, and of arrays also dtype and shape."""
    for field in dataclasses.fields(one):  # type: ignore[arg-type]
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert np.array_equal(a, b)
        elif isinstance(a, UnitTable):
            assert_same(a, b)
        else:
            assert a == b
            assert type(a) is type(b)


numbers = st.floats(0, 1, width=32)


@st.composite
def explanations(draw: st.DrawFn, key: Key) -> Explanation:
    names = draw(st.lists(st.sampled_from(["edges", "features", "columns", "eigene Ärt"]), unique=True))
    units = draw(st.integers(0, 4)) if names else 0
    ids = [[draw(st.integers(-1, 2**40)), draw(st.integers(-1, 2**40))] for _ in range(units)]
    classes = draw(st.integers(2, 4))
    rows = [np.array([draw(numbers) for _ in range(classes)], dtype=np.float32) for _ in range(3)]
    maybe, count = st.one_of(st.none(), st.booleans()), st.integers(0, 9)
    share = st.one_of(st.none(), st.tuples(numbers, numbers, numbers))
    changes, typed = draw(st.booleans()), draw(st.booleans())
    types = Types(("user", "item"), (0, 3, 2**40), (("user", "likes", "item"),), (-1,), ("user",))
    return Explanation(
        key=key,
        task=draw(st.sampled_from(["node", "graph"])),
        prediction=draw(st.integers(0, classes - 1)),
        units=UnitTable(
            tuple(names),
            np.array([draw(st.integers(0, len(names) - 1)) for _ in range(units)], dtype=np.int8),
            np.array(ids, dtype=np.int64).reshape(-1, 2),
            np.array([[draw(numbers) for _ in range(3)] for _ in range(units)] if changes else []).reshape(-1, 3),
            np.array([[draw(st.integers(0, units - 1)), 3, 4]] if units else [], dtype=np.int64).reshape(-1, 3),
            np.zeros(units if typed else 0, dtype=np.int16),
        ),
        scores=np.array([draw(numbers) for _ in range(units)], dtype=np.float32),
        selected=np.array([draw(st.booleans()) for _ in range(units)], dtype=bool),
        probabilities=rows[0],
        probabilities_only=rows[1],
        probabilities_without=rows[2],
        sufficient=draw(st.booleans()),
        necessary=draw(st.booleans()),
        minimal=draw(maybe),
        optimal=draw(maybe),
        note=draw(st.text(max_size=5)),
        settings=draw(st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), numbers), max_size=2)),
        seed=draw(st.one_of(st.none(), st.integers(0, 2**40))),
        seconds=draw(st.floats(0, 1e6)),
        directed=draw(st.booleans()),
        types=types if typed else None,
        **{name: draw(st.one_of(st.none(), count)) for name in ("label", "target", "lower_bound", "always_bound")},
        **{name: draw(count) for name in ("rank", "contexts", "evaluations")},
        **{name: draw(maybe) for name in ("default", "plain")},
        **{name: draw(st.booleans()) for name in ("complete", "all_contexts")},
        **{name: draw(share) for name in ("ps", "pn", "pns")},
        **{name: draw(st.one_of(st.none(), numbers)) for name in ("tolerance", "surely")},
        counterexample=draw(st.sampled_from([None, tuple(range(units))])),
        curve=tuple(draw(st.lists(st.tuples(count, numbers), max_size=2))),
        output=draw(st.sampled_from(["classes", "multilabel", "regression"])),
        question=draw(st.sampled_from(["why", "factual", "counterfactual"])),
    )


@pytest.mark.parametrize("ending", ["parquet", "json"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_anything_that_can_be_explained_survives(tmp_path: Path, ending: str, data: st.DataObject) -> None:
    """Keys are numbers, or all of them tuples of the same length."""
    pairs = data.draw(st.booleans())
    one = st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)) if pairs else st.integers(0, 2**40)
    some = data.draw(st.lists(one, max_size=3))  # type: ignore[arg-type]
    found = Explanations(tuple(data.draw(explanations(key)) for key in some), {"names": ["ä", "b"]})
    back = cf2.load(found.save(tmp_path / f"x.{ending}"))
    assert back.context == found.context
    assert [e.key for e in back] == some
    for e, other in zip(found, back):
        assert_same(e, other)


OTHER_JSON = ["[]", "{}", '{"format": 1, "explanations": []}', "not json", '{"format": 2}', "[" * 200_000]


@pytest.mark.parametrize("text", OTHER_JSON, ids=lambda text: text[:20])
def test_json_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CF2Error, match=r"x\.json"):
        cf2.load(tmp_path / "x.json")


# -- files that are no files, or far too large ------------------------------------------------------------------


def as_zeros(path: Path) -> None:
    """A file that claims a terabyte and holds nothing."""
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


INSTEAD = [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path), Path.touch, as_zeros]


@pytest.mark.parametrize("instead", INSTEAD, ids=["a pipe", "a directory", "a loop", "nothing", "zeros"])
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
    ("limit", "value", "says"),
    [
        ("MAX_COLUMN_VALUES", 10**6, "at most 1,000,000 numbers in a column"),  # by what the footer says
        ("MAX_UNPACKED_BYTES", 10**5, "at most 100,000 bytes unpacked"),  # by what there is in memory
    ],
)
def test_a_million_times_the_same_number_is_refused(
    found: cf2.Explanations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, says: str
) -> None:
    """A column of one value repeated is a few bytes on the disk."""
    path = found[:1].save(tmp_path / "x.parquet")
    table = pq.read_table(path)
    place = table.schema.get_field_index("selected")
    many = pa.array([np.zeros(2_000_000, bool)], type=table.schema.field(place).type)
    pq.write_table(table.set_column(place, table.schema.field(place), many), path, compression="zstd")
    assert path.stat().st_size < 50_000
    monkeypatch.setattr(files, limit, value)
    with pytest.raises(CF2Error, match=says):
        cf2.load(path)


@pytest.mark.parametrize("name", ["note", "unit_names"])
def test_a_long_text_that_comes_many_times_takes_no_memory(
    found: cf2.Explanations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A dictionary holds it once, and rows refer to it: gigabytes in a few kilobytes."""
    table = pq.read_table(found[:1].save(tmp_path / "x.parquet"))
    about, rows = table.schema.metadata[b"cf2"], 500
    many = pa.concat_tables([table] * rows).combine_chunks()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 200_000]))
    column = text if name == "note" else pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), text)
    many = many.set_column(table.schema.get_field_index(name), name, column)
    path = tmp_path / "y.parquet"
    with pq.ParquetWriter(path, many.schema, compression="zstd", store_schema=False) as writer:
        writer.write_table(many)
        writer.add_key_value_metadata({"cf2": about.decode()})
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(files, "MAX_JSON_BYTES", 10**7)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(CF2Error, match=r"at most 10,000,000 letters in a column, but got 100,000,000"):
        cf2.load(path)
    assert pa.default_memory_pool().max_memory() - before < 50_000_000


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
    "a truth value for a class": {"prediction": True},
    "a class that is not there": {"prediction": 9},
    "other probabilities": {"probabilities_only": [0.5]},
    "a kind of unit that is not there": {"unit_names": ["edges"]},
    "fewer scores": {"scores": []},
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


def test_a_file_without_a_digest_is_still_read_if_it_lacks_nothing(found: cf2.Explanations, tmp_path: Path) -> None:
    path = found.save(tmp_path / "x.json")
    stored = json.loads(path.read_text())
    del stored["digest"]
    path.write_text(json.dumps(stored))
    assert same_results(cf2.load(path), found)
    del stored["explanations"][0]["scores"]
    path.write_text(json.dumps(stored))
    with pytest.raises(CF2Error, match="KeyError: 'scores'"):
        cf2.load(path)


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


@tried(few=150, many=2000)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_refused_or_read_as_it_was_written(
    found: cf2.Explanations, tmp_path: Path, kind: str, seeds: range
) -> None:
    assert len(seeds) / 2 < attack(kind, tmp_path, found, seeds) <= len(seeds)


# -- well-formed nonsense -------------------------------------------------------------------------------------------

NONSENSE: list[Any] = [None, -1, 10**30, 1.5, "x", "", [], [1], {}, {"a": 1}, True, [[0]], float("nan")]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, name)
        if isinstance(part, dict | list):
            yield from places(part, (*path, name))


@tried(few=300, many=5000)
def test_nonsense_that_loads_can_be_summarised_reported_and_saved(
    found: cf2.Explanations, tmp_path: Path, seeds: range
) -> None:
    path = found.save(tmp_path / "x.json")
    whole = json.loads(path.read_text())
    del whole["digest"], whole["explanations"][2:]
    whole["context"] |= dict.fromkeys(("class_names", "graphs", "atoms", "truth"))
    every, raw, loaded = sorted(places(whole), key=len), [], 0  # what lies higher is more often hit
    for seed in seeds:
        rng, changed = random.Random(seed), json.loads(json.dumps(whole))
        *way, name = every[int(len(every) * rng.random() ** 2)]
        held, value = changed, rng.choice(NONSENSE)
        for part in way:
            held = held[part]
        held[name] = value
        path.write_text(json.dumps(changed))
        try:
            back = cf2.load(path)
            loaded += 1
            repr(back), back.summary(), back.to_pandas(), back[0].summary()
            back.save(tmp_path / "again.parquet")
            back.report(tmp_path / "report.html", pictures=0)
        except CF2Error:
            continue
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            at = "/".join(map(str, (*way, name)))
            raw.append(f"{seed}: {at}={value!r:.20}: {error!r:.60} {where.filename[-30:]}:{where.lineno}")
    assert raw == [], "\n".join(raw)
    assert loaded > len(seeds) / 20


@pytest.mark.parametrize("spec", [{"settings": [1]}, {"added_attributes": True}, 3])
def test_a_request_of_another_shape_is_refused(found: cf2.Explanations, tmp_path: Path, spec: Any) -> None:
    path = found.save(tmp_path / "x.json")
    whole = json.loads(path.read_text())
    del whole["digest"]
    whole["context"]["spec"] = spec
    path.write_text(json.dumps(whole))
    with pytest.raises(CF2Error, match="another `spec`"):
        cf2.load(path)
