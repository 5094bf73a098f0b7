"""What `Explanations.where` asks of each explanation: attributes, a status, a class by number or name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cf2.errors import require, unknown_name
from cf2.results.explanation import Explanation

STATUSES = ("found", "impossible", "not found", "unverified", "not predicted", "empty", "refused")
_CLASSES = ("prediction", "label", "target", "explained")  # attributes that hold a class
_FACTS = ("size", "explained", "value", "num_units")


def test_for(wanted: Mapping[str, Any], classes: Sequence[str]) -> Callable[[Explanation], bool]:
    """The test that an explanation has these values, each one or any of several; refuses names that nothing has."""
    numbered = {name: [_number(name, one, classes) for one in _several(value)] for name, value in wanted.items()}

    def has(e: Explanation, name: str, values: Sequence[Any]) -> bool:
        own = getattr(e, name)
        return any(own is one or own == one for one in values)

    return lambda e: all(has(e, name, values) for name, values in numbered.items())


def _several(value: Any) -> Any:
    return value if isinstance(value, list | set | frozenset | range) else (value,)


def _number(attribute: str, value: Any, classes: Sequence[str]) -> Any:
    """A value of an attribute, of a class its number."""
    if not hasattr(Explanation, attribute) and attribute not in Explanation.__dataclass_fields__:
        known = [*Explanation.__dataclass_fields__, *(n for n in vars(Explanation) if n in _FACTS)]
        raise unknown_name("an attribute of an explanation", attribute, known)
    if attribute == "status" and value not in STATUSES:
        raise unknown_name("`status`", value, STATUSES)
    if attribute not in _CLASSES or not isinstance(value, str):
        return value
    require(bool(classes), f"Expected `{attribute}` as a number without `class_names`", got=repr(value)[:80])
    if value not in classes:
        raise unknown_name(f"`{attribute}`", value, classes)
    return classes.index(value)
