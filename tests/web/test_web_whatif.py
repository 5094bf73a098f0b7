"""What the model says after a removal: the verdicts of the run, from the model, whatever the units are."""

from dataclasses import replace

import numpy as np
import pytest

from cf2.errors import CF2Error
from cf2.options import Spec
from cf2.results.explanation import UnitTable
from cf2.results.explanations import Explanations
from cf2.runs.source import ModelAndData
from cf2.web.whatif import WhatIf
from report.explained_toys import explained, first_edge, red_edges


def test_removing_or_keeping_the_explanation_gives_the_verdicts_of_the_run(
    red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    asked = WhatIf(red_source, found)
    for e in [*found["cf2"], *found["guess"]]:
        answer = asked.ask(e, e.selected)
        assert np.allclose(answer.left, e.probabilities_without, atol=1e-5)
        assert np.allclose(answer.removed, e.probabilities_only, atol=1e-5)
        assert answer.removed_verdict == (e.sufficient, e.necessary)
        assert asked.ask(e, ~e.selected).left_verdict == (e.sufficient, e.necessary)
        assert np.allclose(asked.ask(e, np.zeros(e.num_units, dtype=bool)).left, e.probabilities, atol=1e-5)


def test_a_class_that_the_model_did_not_predict_is_judged_as_it_was_asked(red_source: ModelAndData) -> None:
    given = explained(red_edges, "cf2", [3])
    e = given[0]
    other = replace(e, target=0, status="not predicted", sufficient=False, necessary=False)
    context = given.context | {"spec": Spec(target=0).to_json()}
    asked = WhatIf(red_source, {"cf2": Explanations((other,), context)})
    other = asked.explanation(other.key, "cf2")
    # Of node 3 the model says 1. Without the set it says 0, the class that is explained.
    answer = asked.ask(other, other.selected)
    assert (answer.removed_verdict, answer.left_verdict, answer.changed) == ((False, False), (False, False), True)
    answer = asked.ask(other, np.zeros(e.num_units, dtype=bool))
    assert (answer.removed_verdict, answer.left_verdict, answer.changed) == ((False, False), (False, False), False)
    assert WhatIf(red_source, {"cf2": given}).ask(e, e.selected).removed_verdict == (True, True)


def test_another_model_or_other_units_than_those_of_the_run_are_refused(
    red_source: ModelAndData, found: dict[str, Explanations]
) -> None:
    e = replace(found["cf2"][0], probabilities=np.array([0.3, 0.7], dtype=np.float32))
    with pytest.raises(CF2Error, match="other probabilities"):
        WhatIf(red_source, {"cf2": Explanations((e,))}).ask(e, e.selected)
    given = explained(red_edges, "cf2", [3], units=("features",))[0]
    e = replace(given, units=replace(given.units, ids=given.units.ids + 10**6))
    with pytest.raises(CF2Error, match="or units"):
        WhatIf(red_source, {"cf2": Explanations((e,))}).ask(e, e.selected)


def test_an_explanation_that_was_refused_as_too_large_is_shown_without_units(red_source: ModelAndData) -> None:
    given = explained(red_edges, "cf2", [3])
    none = {"units": UnitTable.none(), "scores": np.zeros(0), "selected": np.zeros(0, dtype=bool)}
    e = replace(given[0], status="refused", note="too many", **none)
    context = given.context | {"spec": Spec(max_units=2).to_json()}
    answer = WhatIf(red_source, {"cf2": Explanations((e,), context)}).ask(e, e.selected)
    assert np.allclose(answer.left, e.probabilities, atol=1e-5)
    assert not answer.changed


def test_explaining_again_adds_a_verified_explanation_made_of_the_same_units(red_source: ModelAndData) -> None:
    given = explained(first_edge, "guess", [3], units=("features", "edges"))
    asked = WhatIf(red_source, {"guess": given})
    name = asked.again(given[0], 0.5, None)
    assert list(asked.explanations(3)) == ["guess", name]
    made = asked.explanation(3, name)
    assert (made.status, made.label) == ("found", given[0].label)
    assert made.units.names == ("features", "edges")
    assert asked.ask(made, made.selected).removed_verdict == (True, True)


def test_the_list_of_methods_can_be_read_while_another_thread_adds_one(red_source: ModelAndData) -> None:
    given = explained(first_edge, "guess", [3])
    asked = WhatIf(red_source, {"guess": given})
    asked.again(given[0], 0.5, None)
    reading = iter(asked._found_on_page.items())
    asked.again(given[0], 0.7, None)
    assert len(list(reading)) == 1  # a dictionary that grew would raise here
    assert len(asked.explanations(3)) == 3
