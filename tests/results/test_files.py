"""Explanations come back from disk exactly, and what is no such file is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cf2
from cf2.errors import CF2Error
from cf2.options import Key
from cf2.results.explanation import Explanation, UnitTable
from cf2.results.explanations import Explanations
from toys import NodeNet, random_graph


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


@pytest.fixture(scope="module")
def found() -> cf2.Explanations:
    model, data = NodeNet("sum", seed=1), random_graph(30, 45, seed=6)
    return cf2.explain(model, data, nodes=[3, 7, 9, 12], units=("edges", "features"))


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_round_trip_is_exact(found: cf2.Explanations, tmp_path: Path, ending: str) -> None:
    back = cf2.load(found.save(tmp_path / f"x.{ending}"))
    assert back.context == found.context
    assert len(back) == len(found)
    for one, other in zip(found, back):
        assert_same(one, other)


numbers = st.floats(0, 1, width=32)


@st.composite
def explanations(draw: st.DrawFn, key: Key) -> Explanation:
    names = draw(st.lists(st.sampled_from(["edges", "features", "columns", "eigene Ärt"]), unique=True))
    units = draw(st.integers(0, 4)) if names else 0
    ids = [[draw(st.integers(-1, 2**40)), draw(st.integers(-1, 2**40))] for _ in range(units)]
    classes = draw(st.integers(2, 4))
    rows = [np.array([draw(numbers) for _ in range(classes)], dtype=np.float32) for _ in range(3)]
    maybe = st.one_of(st.none(), st.booleans())
    return Explanation(
        key=key,
        task=draw(st.sampled_from(["node", "graph"])),
        prediction=draw(st.integers(0, classes - 1)),
        units=UnitTable(
            tuple(names),
            np.array([draw(st.integers(0, len(names) - 1)) for _ in range(units)], dtype=np.int8),
            np.array(ids, dtype=np.int64).reshape(-1, 2),
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
        label=draw(st.one_of(st.none(), st.integers(0, 9))),
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


@pytest.mark.parametrize("ending", ["parquet", "json"])
def test_keys_of_two_numbers_come_back_as_tuples(found: cf2.Explanations, tmp_path: Path, ending: str) -> None:
    pairs = [(3, 7), (7, 3), (0, 0), (12, 2**40)]
    tuples = Explanations(tuple(dataclasses.replace(e, key=key) for e, key in zip(found, pairs)))
    back = cf2.load(tuples.save(tmp_path / f"x.{ending}"))
    assert [e.key for e in back] == pairs
    assert back.at((7, 3)).key == (7, 3)
    assert list(back.to_pandas()["key"]) == pairs


def test_what_cannot_be_read_is_named(tmp_path: Path, found: cf2.Explanations) -> None:
    with pytest.raises(CF2Error, match="not there"):
        cf2.load(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(CF2Error, match="to hold explanations"):
        cf2.load(tmp_path / "bad.parquet")
    with pytest.raises(CF2Error, match=r"\.parquet or \.json"):
        found.save(tmp_path / "x.pkl")
    with pytest.raises(CF2Error, match="directory to save in"):
        found.save(tmp_path / "nowhere" / "x.json")


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 1, "explanations": []}', "not json", '{"format": 2}'])
def test_json_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CF2Error, match=r"x\.json"):
        cf2.load(tmp_path / "x.json")


def test_a_row_that_lacks_something_is_named(tmp_path: Path, found: cf2.Explanations) -> None:
    path = found.save(tmp_path / "x.json")
    stored = json.loads(path.read_text())
    del stored["explanations"][0]["scores"], stored["digest"]
    path.write_text(json.dumps(stored))
    with pytest.raises(CF2Error, match="KeyError: 'scores'"):
        cf2.load(path)
