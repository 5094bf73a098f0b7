"""The explanations of a page, by instance and name: those of a run, with all answers, and those made on the page."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cf2.errors import CF2Error, require
from cf2.report.sentences import key_id
from cf2.results.explanation import Explanation
from cf2.results.explanations import Explanations
from cf2.spec import Key, Spec
from cf2.web.labels import visible, visible_context

KEPT = 64  # new explanations that stay in memory
# The options that an answer depends on.
TYPED = ("node_type", "edge_type", "reverse")
ANSWER = frozenset({"units", "question", "target", "output", "level", "directed", "leave_out_pair", *TYPED})
ANSWER |= {"edits", "candidates", "groups", "one_hot", "added_attributes"}


class Catalogue:
    """Explanations by method, as a run has them, and those that are made on the page."""

    def __init__(self, found: Mapping[str, Explanations]) -> None:
        found = {visible(name): given for name, given in found.items() if len(given)}
        require(bool(found), "Expected at least one explanation to show", got="none")
        self.methods: dict[str, dict[Key, Explanation]] = {}  # further answers of a method follow it
        self._specs: dict[str, Any] = {}
        for name, given in found.items():
            for e in sorted(given, key=lambda e: e.rank):
                self.methods.setdefault(answer_name(name, e.rank), {})[e.key] = _shown(e)
                self._specs[answer_name(name, e.rank)] = given.context.get("spec")
        self.context = visible_context(next((dict(f.context) for f in found.values() if f.context), {}))
        # The browser knows instances by these texts.
        self.keys = {key_id(e.key): e.key for given in found.values() for e in given}
        # Never changed, but replaced by a longer one: other threads may be reading it.
        self._again: dict[tuple[Key, str], tuple[Explanation, Spec]] = {}
        self._keeping = threading.Lock()

    def key(self, text: object) -> Key:
        """The key that the browser means, or an error for one that is not there."""
        if isinstance(text, str) and text in self.keys:
            return self.keys[text]
        raise CF2Error("Expected an instance of this run", got=repr(text))

    def explanations(self, key: Key) -> dict[str, Explanation]:
        """All explanations of a key, by method; those asked for on the page last."""
        run = {name: by_key[key] for name, by_key in self.methods.items() if key in by_key}
        return run | {name: e for (known, name), (e, _) in self._again.items() if known == key}

    def explanation(self, key: Key, method: object) -> Explanation:
        """The explanation of a key by a method, or an error for anything that is not there."""
        found = self.explanations(key).get(method) if isinstance(method, str) else None
        if found is None:
            raise CF2Error("Expected the method of an explanation of this run", got=repr(method))
        return found

    def answers(self, key: Key, method: str) -> list[str]:
        """The names of all answers that a method gave for a key, the best first."""
        return [name for name in self.explanations(key) if first_answer(name) == method]

    def keep(self, made: Explanation, asked: Spec, name: str) -> str:
        """Keep an answer to what was asked under a name, which is returned; the oldest ones make room."""
        spec = Spec.from_json({option: value for option, value in asked.to_json().items() if option in ANSWER})
        with self._keeping:
            kept = {**self._again, (made.key, name): (_shown(made), spec)}
            self._again = dict(list(kept.items())[-KEPT:])
        return name

    def spec(self, e: Explanation) -> Spec:
        """What was asked when the explanation was made, as far as an answer depends on it."""
        for made, spec in self._again.values():
            if made is e:
                return spec
        stored = next((self._specs[name] for name, by_key in self.methods.items() if by_key.get(e.key) is e), None)
        if stored is None:
            return Spec(units=e.units.names or ("edges",), directed=e.directed)
        asked = {name: value for name, value in stored.items() if name in ANSWER}
        return Spec.from_json({**asked, "tolerance": e.tolerance})


def answer_name(method: str, rank: int) -> str:
    """How an answer of a method is called.

    >>> answer_name("cf2", 0), answer_name("cf2", 2)
    ('cf2', 'cf2, answer 3')
    """
    return f"{method}, answer {rank + 1}" if rank else method


def first_answer(name: str) -> str:
    """The name of the method's best answer.

    >>> first_answer("cf2, answer 3"), first_answer("cf2")
    ('cf2', 'cf2')
    """
    return re.sub(r", answer [0-9]+$", "", name)


def _shown(e: Explanation) -> Explanation:
    """The explanation, with texts that can be displayed."""
    texts: dict[str, Any] = {"task": visible(e.task), "method": visible(e.method), "note": visible(e.note)}
    return e if texts == {name: getattr(e, name) for name in texts} else replace(e, **texts)
