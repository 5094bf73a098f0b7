"""What the page shows of a state, as JSON with fragments of HTML; the browser puts them into their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from markupsafe import Markup

from cf2.errors import require
from cf2.models.outputs import output_kind
from cf2.options import Edit as EditSort
from cf2.patterns.edit_rules import EditRules
from cf2.patterns.pictures import summary_parts
from cf2.patterns.summary import Patterns
from cf2.report import environment, live
from cf2.report import pictures as svg
from cf2.report.html import card, legend, row
from cf2.report.scene import MOLECULE, Scene, is_molecule, scene
from cf2.report.words import (
    adds_or_changes,
    class_name,
    describe_prediction,
    describe_said,
    describe_target,
    key_id,
    next_step,
)
from cf2.results.explanation import WHOLE, Explanation
from cf2.units.edits import EDITS, is_candidate
from cf2.web.whatif import State, WhatIf, first_answer


def page_html(
    whatif: WhatIf, notes: Sequence[str], patterns: Patterns | None, rules: EditRules | None, command: str, nonce: str
) -> str:
    """The page before a state is shown; `command` serves it with a model where there is none."""
    some = [next(iter(by_key.values())) for by_key in whatif.methods.values()]
    # The classes of what can be drawn, as far as the run has it.
    kinds = {name for e in some for name in e.units.names} - {"edges", "nodes", "groups"}
    target, marked = ("" if some[0].task in WHOLE else some[0].task), not all(map(is_candidate, kinds))
    parts = {
        "title": f"Explanations of {whatif.context.get('dataset') or 'a model'}",
        "model": whatif.context.get("model") or "",
        "notes": notes,
        "legend": legend({"chosen", *(edit.past for edit in EDITS.values())}, whatif.context, target, marked),
        "classes": [(column, class_name(some[0], column)) for column in range(len(some[0].probabilities))],
        "sorts": get_args(EditSort),
        "atoms": list(enumerate(whatif.atoms)),
        "numbers": not output_kind(some[0].output).probability,
        "summaries": [summary_parts(found, frozenset(whatif.keys.values())) for found in (patterns, rules) if found],
        "molecules": MOLECULE if is_molecule(whatif.context) else "",
        "read_only": whatif.read_only,
        "command": command,
        "style": svg.STYLE,
        "edit_kinds": EDITS.values(),
        "nonce": nonce,
    }
    return str(environment().get_template("page.html").render(**parts))


def listing(whatif: WhatIf, method: str | None) -> list[dict[str, Any]]:
    """One line per first answer of a method, or of the run's first one."""
    by_key = whatif.methods.get(method or "") or next(iter(whatif.methods.values()))
    return [_entry(e) for e in by_key.values()]


def _entry(e: Explanation) -> dict[str, Any]:
    tests = [("S", e.sufficient, "sufficient"), ("N", e.necessary, "necessary")]
    if adds_or_changes(e):
        tests = [("E", e.necessary, "changed by edits")]
    spoken = ", ".join(f"{'' if good else 'not '}{word}" for _, good, word in tests)
    wrong = ", misclassified" if e.label is not None and e.label != e.prediction else ""
    said = describe_said(e, e.probabilities)
    return row(e, e.method) | {
        "id": key_id(e.key),
        "name": describe_target(e),
        "marks": [(letter, bool(good)) for letter, good, _ in tests],
        "label": f"{describe_target(e)}: {said}{wrong}, {spoken}, size {e.size}",
    }


def state_of(whatif: WhatIf, given: Mapping[str, Any]) -> State:
    """The state that a browser asks for: by an address, or by its parts and by what was done (`do`)."""
    if "address" in given:
        key = next(iter(whatif.keys.values()))
        return whatif.state_at(given["address"]) or whatif.state(key, next(iter(whatif.explanations(key))))
    key, method = whatif.key(given["key"]), given.get("method")
    known = whatif.explanations(key)
    if method not in known:  # another instance need not have it
        method = next(iter(known))
    e = known[method]
    removed, edits = given.get("removed", []), given.get("edits", [])
    if "do" in given:  # begins anew
        gone = {"without": e.selected, "only": ~e.selected & ~live.absent(e), "restore": e.selected & False}
        require(given["do"] in gone, f"Expected one of {', '.join(gone)}", got=given["do"][:80])
        removed, edits = np.flatnonzero(gone[given["do"]]).tolist(), []
    beyond = {unit - e.num_units for unit in removed if unit >= e.num_units}  # edits that are taken back
    edits = [edit for place, edit in enumerate(edits) if place not in beyond]
    return whatif.state(key, method, [unit for unit in removed if unit < e.num_units], edits)


def show(whatif: WhatIf, state: State, near: Sequence[int] = ()) -> dict[str, Any]:
    """Everything that the page shows of a state but the list, and the methods side by side."""
    e = state.e
    edited, gone, drawn = _drawn(whatif, state)
    names = list(whatif.explanations(e.key))
    first = first_answer(state.method)
    first = first if first in names else state.method
    listed, own = live.listed_units(e, near), np.arange(e.num_units, edited.num_units)
    left = e.num_units - len(listed)
    return {
        "address": whatif.address_of(state),
        "key": key_id(e.key),
        "method": state.method,
        "first": first,
        "methods": [name for name in names if name == first_answer(name) or first_answer(name) not in names],
        "answers": whatif.answers(e.key, first) or [first],
        "removed": np.flatnonzero(state.removed).tolist(),
        "edits": [list(edit) for edit in state.edits],
        "prediction": describe_prediction(e),
        "verdict": live.verdicts_html(e, next_step(e, read_only=whatif.read_only)),
        "picture": svg.picture(drawn, describe_target(e), gone=gone),
        "types": drawn.legend,
        "caption": drawn.caption,
        "answer": live.answer_html(e, said(whatif, state)),
        "units": live.units_html(e, listed, state.removed, disabled=whatif.read_only),
        "unlisted": f"{left:,} more are not listed. Enter a node's id above to list its units." if left else "",
        "edited": live.units_html(edited, own, gone),
        "edits_only": adds_or_changes(e),  # which are no part that could be shown alone
        "without": "Make the edits" if adds_or_changes(e) else "Remove the explanation",
    }


def said(whatif: WhatIf, state: State) -> live.Said:
    """What the model says now, or said when the explanation was made; after edits, there are no parts to be judged."""
    e = state.e
    if state.edits or adds_or_changes(e):
        now, changed = (e.probabilities_without, None)
        if not whatif.read_only:
            now, changed = whatif.ask_edited(e, state.removed, state.edits)
        return live.Said({"as it is": e.probabilities, "after the edits": now}, changed)
    rows = {"whole graph": e.probabilities}
    if whatif.read_only:
        rows |= {"only this": e.probabilities_only, "all but this": e.probabilities_without}
        return live.Said(rows, None, [live.part("in the explanation", e.size, e.sufficient, e.necessary)])
    answer, gone = whatif.ask(e, state.removed), int(state.removed.sum())
    rows |= {"what is left": answer.left, "removed part": answer.removed}
    left = live.part("left", e.num_units - gone, *answer.left_verdict)
    return live.Said(rows, answer.changed, [left, live.part("removed", gone, *answer.removed_verdict)])


def _drawn(whatif: WhatIf, state: State) -> tuple[Explanation, np.ndarray, Scene]:
    """The explanation with the edits by hand as further units, which units are removed or made, and its picture."""
    edited = whatif.with_edits(whatif.with_edges(state.e), state.edits)
    gone = np.concatenate([state.removed, np.ones(len(state.edits), dtype=bool)])
    return edited, gone, scene(edited, list(whatif.explanations(state.e.key).values()))


def comparison(whatif: WhatIf, key: Any) -> str:
    """Every method's picture of one instance, side by side, as the report shows it."""
    shown = [(name, whatif.with_edges(e)) for name, e in whatif.explanations(whatif.key(key)).items()]
    return str(environment().get_template("card.html").module.panels(card(shown)))


def svg_file(whatif: WhatIf, state: State) -> str:
    """The explanation as one SVG file; after a change, what is removed, added and changed instead."""
    edited, gone, drawn = _drawn(whatif, state)
    if gone.any():
        drawn = scene(replace(edited, selected=gone, question="counterfactual", status="unverified"))
    text = str(svg.picture(drawn, describe_target(edited)))
    size = 'xmlns="http://www.w3.org/2000/svg" width="840" color="#1c2330"'
    return text.replace("<svg ", f"<svg {size} ", 1).replace(">", Markup(f"><style>{svg.STYLE}</style>"), 1)
