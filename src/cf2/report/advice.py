"""What a reader can try next, for every way in which an explanation can end."""

from __future__ import annotations

from cf2.report.unit_words import adds_or_changes
from cf2.results.explanation import Explanation

CHANGING = 'ask for edits that add and change: question="counterfactual", edits=("remove", "add", "change").'
NEXT = {
    "found": "Take it away, or keep nothing else, and see the model change its answer; or ask for another explanation.",
    "impossible": f"Nothing that is removed does it. Other units may, or {CHANGING}",
    "not found": 'Search longer with effort="thorough", allow units of more kinds, or ' + CHANGING,
    "unverified": "This method only scores. Explain again by cf2, or pass search=True to look for a set that passes.",
    "not predicted": 'Ask what would have to change: question="counterfactual" with this class as its target.',
    "empty": 'There is nothing of this kind to remove. Choose other units, such as units=("edges", "features").',
    "refused": "Let only the units that matter be searched, with reduce=, or raise max_units=.",
}
REACHED = "Make the edits one by one, and see which of them turns the answer; or allow fewer kinds of edit."
MISSED = 'Allow more: other kinds of edit, candidates="far", or effort="thorough".'
FAILED = {
    (True, False): "The answer has a second reason beside this one. Ask for both tests at once: explain again by cf2.",
    (False, True): "It is needed, and needs company. A larger k, or cf2, finds what else it takes.",
}


def next_step(e: Explanation) -> str:
    """One sentence or two about what to try next."""
    if adds_or_changes(e) and e.status in ("found", "impossible", "not found", "unverified"):
        return REACHED if e.necessary else MISSED
    if e.status == "unverified" and e.sufficient and e.necessary:
        return NEXT["found"]
    if e.status == "unverified" and e.question == "why" and (e.sufficient, e.necessary) in FAILED:
        return FAILED[e.sufficient, e.necessary]
    return NEXT.get(e.status, "")
