"""Random scores come from a stream of the instance's own."""

from __future__ import annotations

import numpy as np
import pytest

import cf2
from methods_toys import Lights, star, toy


def test_random_draws_from_the_stream_of_the_instance() -> None:
    subject = toy("cycles", 0)
    nodes = subject.test[:4]
    found = cf2.explain(subject.model, subject.data, nodes, method="random", k=3, seed=5)
    again = cf2.explain(subject.model, subject.data, nodes[::-1], method="random", k=3, seed=5)
    other = cf2.explain(subject.model, subject.data, nodes, method="random", k=3, seed=6)
    assert all(np.array_equal(a.scores, b.scores) for a, b in zip(found, list(again)[::-1]))
    assert not any(np.array_equal(a.scores, b.scores) for a, b in zip(found, other))
    assert {e.size for e in found} == {3}


def test_settings_are_checked() -> None:
    with pytest.raises(cf2.CF2Error, match="`k`"):
        cf2.explain(Lights(), star(1.0, 2.0), [0], method="random", k=0)
