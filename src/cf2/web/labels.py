"""Labels from files, made fit for display: what cannot be seen, or turns the text around it, is written out."""

from __future__ import annotations

import re
from typing import Any

# Control characters, which XML forbids and browsers drop; halves of surrogate pairs, which cannot be sent; and marks
# that change the direction of all that follows.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
TEXTS = ("dataset", "model")


def visible(text: object) -> str:
    r"""The text with every such character written as its number.

    >>> visible("caf\u00e9 \u202e1\x00")
    'café \\u202e1\\u0000'
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def visible_context(context: dict[str, Any]) -> dict[str, Any]:
    """The context of explanations with labels that can be displayed."""
    made = {**context, **{name: visible(context[name]) for name in TEXTS if context.get(name)}}
    for name in ("class_names", "atoms"):
        if isinstance(context.get(name), list | tuple):
            made[name] = [visible(label) for label in context[name]]
    graphs = context.get("graphs")
    if isinstance(graphs, dict):
        made["graphs"] = {key: _visible_graph(known) for key, known in graphs.items()}
    return made


def _visible_graph(known: Any) -> Any:
    labels = known.get("labels") if isinstance(known, dict) else None
    return {**known, "labels": [visible(label) for label in labels]} if isinstance(labels, list | tuple) else known
