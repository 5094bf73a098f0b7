"""Write the options of `cf2.explain` into docs/api.md: `python docs/write_options.py`.

Names and defaults come from the signature, types from the docstring, and meanings from `cf2.options`, or from the
docstring where an option is not part of a Spec.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from cf2 import options as spec
from cf2.api import explain

PAGE = Path(__file__).parent / "api.md"
BEGIN, END = "<!-- options: begin -->", "<!-- options: end -->"


def documented() -> dict[str, tuple[str, str]]:
    """The type and the meaning of every parameter in the docstring of `explain`, by name."""
    text = inspect.getdoc(explain) or ""
    section = text.split("Parameters\n----------\n")[1].split("\n\nReturns\n")[0]
    found = {}
    for part in re.split(r"\n(?=\S)", section):
        head, *lines = part.splitlines()
        name, _, kind = head.partition(" : ")
        found[name.lstrip("*")] = (kind, " ".join(line.strip() for line in lines))
    return found


def table() -> str:
    """One row per parameter, in the order of the signature."""
    meanings, described = spec.meanings(), documented()
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for parameter in inspect.signature(explain).parameters.values():
        kind, meaning = described[parameter.name]
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`".replace("'", '"')
        name = str(parameter).partition(":")[0]
        cells = (f"`{name}`", kind, default, meanings.get(parameter.name, meaning))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """The text of the page with the table between its two marks."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
