"""Put what the examples print into `getting-started.md`, and what notebooks show into `examples/*.ipynb`.

python docs/write_outputs.py
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import re
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "getting-started.md"
NOTEBOOKS = sorted((DOCS.parent / "examples").glob("*.ipynb"))
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def filled(text: str) -> str:
    """A page with what each of its Python blocks prints below it, run one after the other in an empty directory."""
    space: dict[str, Any] = {"__name__": "page"}

    def ran(block: re.Match[str]) -> str:
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(block[1], str(PAGE), "exec", dont_inherit=True), space)
        below = f"\n```text\n{said.getvalue().rstrip()}\n```\n" if said.getvalue().strip() else ""
        return f"```python\n{block[1]}```\n{below}"

    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        return BLOCK.sub(ran, text)


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook with its code cells run one after the other, and what each prints and shows."""
    space: dict[str, Any] = {"__name__": "__main__"}
    cells = [dict(cell) for cell in notebook["cells"]]
    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        for number, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), 1):
            cell |= {"execution_count": number, "outputs": _outputs("".join(cell["source"]), space, number)}
            cells[[c.get("id") for c in cells].index(cell["id"])] = cell
    return {**notebook, "cells": cells}


def _outputs(code: str, space: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree, said, value = ast.parse(code), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(said):
        exec(compile(tree, "cell", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    found: list[dict[str, Any]] = []
    if said.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        shown: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_png_"):
            picture = base64.b64encode(value._repr_png_()).decode()
            shown = {"image/png": picture, "text/plain": ["<a picture>"]}
        about = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        found.append({**about, "data": shown})
    return found


def texts(notebook: dict[str, Any]) -> list[Any]:
    """What the cells print and show, pictures left out."""
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", ())]
    return [out.get("text") or out["data"]["text/plain"] for out in outputs]


def main() -> None:
    """Run everything, and write what it gave."""
    os.environ["MPLBACKEND"] = "agg"
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for path in NOTEBOOKS:
        made = executed(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
