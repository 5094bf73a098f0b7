"""Patterns and edit rules as JSON files, and back: a run directory keeps them, the report and the page show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cf2.errors import CF2Error
from cf2.patterns.edit_rules import EditRule, EditRules, TriedRule
from cf2.patterns.pattern import Pattern
from cf2.patterns.summary import MEASURES, FoundPattern, Patterns
from cf2.results.files import as_key
from cf2.results.metrics import Estimate

PATTERNS, RULES = "patterns.json", "rules.json"
BY_CLASS = ("tested", "together", "empty", "jointly")  # what is known of each class

Made = TypeVar("Made")


def load_patterns(path: str | Path, context: Mapping[str, Any] | None = None) -> Patterns:
    """The patterns that `Patterns.save` wrote.

    Parameters
    ----------
    path : str or Path
    context : mapping, optional
        What is known of the explanations, such as `class_names` and `atoms`.
    """

    def made(given: Any) -> Patterns:
        return Patterns(tuple(map(_found, given["patterns"])), _about(given["about"]), dict(context or {}))

    return _read(path, "patterns", made)


def load_rules(path: str | Path, context: Mapping[str, Any] | None = None) -> EditRules:
    """The edit rules that `EditRules.save` wrote; the parameters are those of `load_patterns`."""

    def made(given: Any) -> EditRules:
        return EditRules(tuple(map(_tried, given["rules"])), _about(given["about"]), dict(context or {}))

    return _read(path, "edit rules", made)


def _read(path: str | Path, what: str, made: Callable[[Any], Made]) -> Made:
    try:
        return made(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        got = f"{str(path)!r}, which cannot be read: {type(error).__name__}: {error}"
        raise CF2Error(
            f"Expected a file of {what}", got=got[:300], do="Make it again with: cf2 patterns RUN"
        ) from error


def _found(row: Mapping[str, Any]) -> FoundPattern:
    facts: dict[str, Any] = {name: _estimate(row[name]) for name in MEASURES}
    facts |= {name: int(row[name]) for name in ("prediction", "support", "answers", "contained", "undecided")}
    return FoundPattern(_pattern(row["pattern"]), **facts, keys=tuple(map(as_key, row["keys"])))


def _tried(row: Mapping[str, Any]) -> TriedRule:
    facts: dict[str, Any] = {name: int(row[name]) for name in ("prediction", "support", "answers")}
    facts |= {"turned": _estimate(row["turned"]), "keys": tuple(map(as_key, row["keys"]))}
    return TriedRule(EditRule(tuple(map(_pattern, row["pieces"]))), **facts)


def _pattern(given: Mapping[str, Any]) -> Pattern:
    labels = tuple(None if label is None else str(label) for label in given["nodes"])
    marks = [0] * len(labels)
    for role, node in enumerate(given["targets"], start=1):
        marks[node] = role
    edges = tuple((int(a), int(b)) for a, b in given["edges"])
    if any(not 0 <= node < len(labels) for pair in edges for node in pair):
        raise ValueError("an edge between nodes that are not there")
    names = tuple(None if name is None else str(name) for name in given["edge_labels"])
    return Pattern(labels, tuple(marks), edges, names, bool(given["directed"]))


def _estimate(value: Any) -> Estimate | None:
    return None if value is None else Estimate(*map(float, value))


def _about(given: Mapping[str, Any]) -> dict[str, Any]:
    """As it was: classes are numbers again, and shares have their intervals."""
    about = dict(given)
    for name in (name for name in BY_CLASS if isinstance(about.get(name), Mapping)):
        about[name] = {int(number): _again(value) for number, value in about[name].items()}
    return about


def _again(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _again(part) for name, part in value.items()}
    return Estimate(*map(float, value)) if isinstance(value, list) and len(value) == 3 else value
