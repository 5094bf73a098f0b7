"""The settings of a request: which are its method's, which those of a search from the method's scores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from cf2.core.units import kinds_for
from cf2.errors import unknown_name
from cf2.methods import registry
from cf2.methods.contract import Method, settings_dict
from cf2.spec import Spec
from cf2.verify.search import Search


def split_settings(spec: Spec, method: Method) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The settings of a Spec that are its method's, and those of a search from the method's scores, if there is one."""
    own = dict(spec.settings)
    if not spec.search or method.searches:
        return own, None
    return own, {f.name: own.pop(f.name) for f in fields(Search) if f.name in own}


def check_names(spec: Spec, options: Iterable[str]) -> None:
    """Refuse a setting that neither the method nor the search knows, with the nearest name, `options` included."""
    method = registry.get(spec.method)
    searching = fields(Search) if spec.search and not method.searches else ()
    known = [f.name for f in (*fields(method.settings), *searching)]
    for name in spec.settings:
        if name not in known:
            raise unknown_name(f"an option, or a setting of method {spec.method!r}", name, [*known, *options])


def complete(spec: Spec) -> Spec:
    """A checked Spec with every setting of its method written out, so that another default does not change it."""
    method = registry.get(spec.method)
    method.check_units(kinds_for(spec))
    own, search = split_settings(spec, method)
    searching = {} if search is None else settings_dict(Search(**search))
    return replace(spec, settings=settings_dict(method.make_settings(own)) | searching)
