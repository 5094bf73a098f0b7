"""Fill everything in the documentation that is made and not written: `make figures`, or `python docs/fill.py`.

- tables of measurements, from benchmarks/measured/*.json: `<!-- table NAME -->`, and `<!-- about NAME -->` beside them
- the paper's tables, from reproduction/results.json; `python docs/fill.py DIR` first takes what
  `cf2 reproduce --out DIR` wrote
- the shipped models, from the files beside their weights: `<!-- shipped NAMES -->`
- docs/api.md, from signatures and docstrings: `<!-- options -->`, `<!-- names … -->`, `<!-- fields NAME -->`
- what docs/getting-started.md prints, the notebooks in examples/ show, and the pictures of docs/gallery.md:
  `python docs/fill.py --run`

Every such part ends with `<!-- end -->`. A test fails where a page differs from what this would write.
"""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]  # `benchmarks` alone may be another package's

import figures  # noqa: E402

from cf2 import options  # noqa: E402
from cf2.samples import training  # noqa: E402
from reproduction.pictures import draw_sizes  # noqa: E402
from reproduction.published import GRIDS, WHOLE  # noqa: E402
from reproduction.tables import EQUAL, LAYOUTS, about_lines, collapsed, on_page, reached_line, rows_of, update_page  # noqa: E402

RESULTS = ROOT / "reproduction" / "results.json"
TABLES_PAGE = ROOT / "reproduction" / "TABLES.md"
STARTED, GALLERY = DOCS / "getting-started.md", DOCS / "gallery.md"
PAGES = [
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    TABLES_PAGE,
    *sorted((ROOT / "benchmarks" / "measured").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
PART = re.compile(
    r"(<!-- (table|about|comparison|reached|shipped|options|names|fields)(?: ([^>]*?))? -->)\n.*?(<!-- end[ \w-]*-->)",
    re.DOTALL,
)


def filled(text: str) -> str:
    """A page with every part made anew."""
    return PART.sub(lambda part: f"{part[1]}\n{MAKERS[part[2]](part[3] or '')}\n{part[4]}", text)


# -- measurements ---------------------------------------------------------------------------------------------


def measured(name: str) -> str:
    """A table of a benchmark, or of the paper's; `NAME COLUMN=a|b` takes only some rows of it."""
    name, _, only = name.partition(" ")
    if (figures.MEASURED / f"{name}.json").is_file():
        kept = figures.read(name)
        if only:
            column, _, values = only.partition("=")
            place = list(kept["columns"]).index(column)
            kept["rows"] = [row for row in kept["rows"] if row[place] in values.split("|")]
        return figures.table(kept)
    return "\n" + (about_lines(results()) if name == "about" else on_page(results(), name))


def about(name: str) -> str:
    """When, with what and on which models a table of a benchmark was measured."""
    return figures.about(figures.read(name))


# -- the paper's tables ---------------------------------------------------------------------------------------

COLUMNS = {
    "ba-shapes": "BA-Shapes",
    "tree-cycles": "Tree-Cycles",
    "mutag0": "Mutag₀",
    "nci1": "NCI1",
    "citeseer": "CiteSeer, edges",
    "citeseer-features": "CiteSeer, features",
}
METHODS = {"cf2": "**cf2**", "cf2-relaxed": "cf2-relaxed, the paper's λ", WHOLE: "*all units*"}
METHODS |= {"cf2-relaxed-by-rule": "cf2-relaxed, λ by the paper's rule"}
METHODS |= {"cf2-relaxed-as-coded": "cf2-relaxed, as in the published code"}
METHODS |= {f"{name}-tuned": f"{name}, tuned" for name in GRIDS}


def results() -> dict[str, Any]:
    """What is kept of `cf2 reproduce`."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return kept


def comparison(methods: str) -> str:
    """Rows are methods, columns data sets; a cell is F_NS with its interval, and the size."""
    rows = {(r["method"], r["dataset"]): r for r in results()["rows"] if r["table"] == "causal"}
    columns = [column for column in COLUMNS if ("cf2", column) in rows]
    lines = ["| F_NS · size | " + " | ".join(COLUMNS[column] for column in columns) + " |"]
    lines.append("|---|" + "--:|" * len(columns))
    for method in (name for name in methods.split() if any((name, column) in rows for column in columns)):
        cells = [_cell(rows.get((method, column))) for column in columns]
        lines.append(f"| {METHODS.get(method, method)} | " + " | ".join(cells) + " |")
    paper = [rows["cf2", column]["published"] for column in columns]
    lines.append("| *CF², published* | " + " | ".join(f"{100 * p['fns']:.1f} · {p['size']:.1f}" for p in paper) + " |")
    top = [rows["cf2", column]["ceiling"] for column in columns]
    lines.append("| *instances with a known answer, %* | " + " | ".join(f"{100 * c:.1f}" for c in top) + " |")
    if WHOLE in methods.split():  # a set of nearly all units passes without saying much
        kept = [1 - rows["cf2-relaxed", column]["sparsity"] for column in columns]
        lines.append("| *units kept with the paper's λ, %* | " + " | ".join(f"{100 * k:.0f}" for k in kept) + " |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    if collapsed(row):
        return EQUAL
    low, high = row["interval"]["fns"]
    return f"{100 * row['fns']:.1f} [{100 * low:.0f}, {100 * high:.0f}] · {row['size']:.1f}"


def shipped(names: str) -> str:
    """What the shipped models are, and how good, from the files beside their weights."""
    lines = ["| model | layers | held out, % | test, % | KB | s |", "|---|---|--:|--:|--:|--:|"]
    for name in names.split():
        about = training.shipped(name)[1]
        recipe, measure = about.recipe, "R² " if about.output == "regression" else ""
        held, test = (
            "–" if score is None else f"{measure}{100 * score:.1f}"
            for score in (about.validation_accuracy, about.test_accuracy)
        )
        size = (figures.WEIGHTS / f"{name}.safetensors").stat().st_size
        layers = f"{recipe.arch}, {recipe.layers} of {recipe.hidden}"
        lines.append(f"| `{name}` | {layers} | {held} | {test} | {size / 1e3:.0f} | {about.seconds:.0f} |")
    return "\n".join(lines)


def take(part: Path) -> None:
    """Keep what `cf2 reproduce` wrote; it must have filled all tables, so that every figure is of one run."""
    new = {name: json.loads((part / f"{name}.json").read_text(encoding="utf-8")) for name in ("rows", "about")}
    made = new["rows"] | {"about": new["about"]}
    if lacking := [table for table in LAYOUTS if not rows_of(made, table)]:
        raise SystemExit(f"{part} has no rows of {', '.join(lacking)}. Go on with: cf2 reproduce --out {part} --resume")
    RESULTS.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    update_page(DOCS / "results.md", made, part)
    draw_sizes(made["rows"], DOCS / "images")


# -- the API --------------------------------------------------------------------------------------------------


def found(name: str) -> Any:
    """What a dotted name stands for."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        value = getattr(value, part, None) or importlib.import_module(".".join(parts[:number]))
    return value


def all_options(_: str) -> str:
    """One row per parameter of `cf2.explain`, in the order of the signature."""
    meanings, described = options.meanings(), documented()
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for parameter in inspect.signature(found("cf2.explain")).parameters.values():
        kind, meaning = described[parameter.name]
        default = "" if parameter.default is parameter.empty else f"`{parameter.default!r}`".replace("'", '"')
        name = str(parameter).partition(":")[0]
        lines.append(_row(f"`{name}`", kind, default, meanings.get(parameter.name, meaning)))
    return "\n".join(lines)


def documented() -> dict[str, tuple[str, str]]:
    """The type and the meaning of every parameter in the docstring of `explain`, by name."""
    return section(found("cf2.explain"), "Parameters")


def section(value: Any, title: str) -> dict[str, tuple[str, str]]:
    """A section of a NumPy docstring: the type and the meaning of each entry, by name."""
    text = (inspect.getdoc(value) or "").split(f"{title}\n{'-' * len(title)}\n")[1]
    text = re.split(r"\n\n\w+\n-+\n", text)[0]
    entries = {}
    for part in re.split(r"\n(?=\S)", text):
        head, *lines = part.splitlines()
        name, _, kind = head.partition(" : ")
        entries[name.lstrip("*")] = (kind, " ".join(line.strip() for line in lines))
    return entries


def fields(name: str) -> str:
    """The attributes of a class."""
    rows = [
        (f"`{field}`", meaning.replace("``", "`")) for field, (_, meaning) in section(found(name), "Attributes").items()
    ]
    return "\n".join(["| field | meaning |", "|---|---|", *(_row(*row) for row in rows)])


def names(listed: str) -> str:
    """One row per name, with the first sentence of its docstring; `cf2.Name:a,b` also lists members."""
    lines = ["| name | what it does |", "|---|---|"]
    for entry in listed.split():
        name, _, members = entry.partition(":")
        value = found(name)
        lines.append(_row(f"`{name}{_arguments(value)}`", _sentence(value)))
        for member in filter(None, members.split(",")):
            inner = getattr(value, member)
            lines.append(_row(f"`{name.split('.')[-1]}.{member}{_arguments(inner)}`", _sentence(inner)))
    return "\n".join(lines)


MADE_BY_READERS = ("Explainer", "Settings", "Verified", "Relaxed", "Search", "Spec")


def _arguments(value: Any) -> str:
    """The names of the parameters, shortened where there are many; none of classes that readers never make."""
    if not callable(value) or (isinstance(value, type) and not value.__name__.endswith(MADE_BY_READERS)):
        return ""
    taken = [name for name in inspect.signature(value).parameters if name not in ("self", "settings")]
    return f"({', '.join([*taken[:4], '…'] if len(taken) > 5 else taken)})"


def _sentence(value: Any) -> str:
    first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\.) (?=[A-Z`])", first)[0].replace("``", "`")


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


MAKERS = {
    "table": measured,
    "about": about,
    "comparison": comparison,
    "reached": lambda _: reached_line(results()),
    "shipped": shipped,
    "options": all_options,
    "names": names,
    "fields": fields,
}

# -- what blocks print, and what notebooks show -----------------------------------------------------------------

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def printed(text: str) -> str:
    """A page with what each of its Python blocks prints below it, run one after the other in an empty directory."""
    space: dict[str, Any] = {"__name__": "page"}

    def ran(block: re.Match[str]) -> str:
        said = io.StringIO()
        with redirect_stdout(said):
            exec(compile(block[1], str(STARTED), "exec", dont_inherit=True), space)
        below = f"\n```text\n{said.getvalue().rstrip()}\n```\n" if said.getvalue().strip() else ""
        return f"```python\n{block[1]}```\n{below}"

    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        return BLOCK.sub(ran, text)


def drawn(page: Path, folder: Path) -> None:
    """The pictures that the blocks of a page make, in `images` of a folder."""
    space: dict[str, Any] = {"__name__": "page"}
    with chdir(folder):
        for block, _ in BLOCK.findall(page.read_text(encoding="utf-8")):
            exec(compile(block, str(page), "exec", dont_inherit=True), space)


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook with its code cells run one after the other, and what each prints and shows."""
    space: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [dict(cell) for cell in notebook["cells"]], 0
    with tempfile.TemporaryDirectory() as empty, chdir(empty):
        for cell in cells:
            if cell["cell_type"] == "code":
                number += 1
                cell |= {"execution_count": number, "outputs": _outputs("".join(cell["source"]), space, number)}
    return {**notebook, "cells": cells}


def _outputs(code: str, space: dict[str, Any], number: int) -> list[dict[str, Any]]:
    tree, said, value = ast.parse(code), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(said):
        exec(compile(tree, "cell", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    shown: list[dict[str, Any]] = []
    if said.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": said.getvalue().splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [repr(value)]}
        if hasattr(value, "_repr_png_"):
            picture = base64.b64encode(value._repr_png_()).decode()
            data = {"image/png": picture, "text/plain": ["<a picture>"]}
        shown.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return shown


def texts(notebook: dict[str, Any]) -> list[Any]:
    """What the cells print and show, pictures left out."""
    outputs = [out for cell in notebook["cells"] for out in cell.get("outputs", ())]
    return [out.get("text") or out["data"]["text/plain"] for out in outputs]


def main(given: Sequence[str]) -> None:
    """Take what a directory holds, if one is named, and fill all pages; `--run` also runs blocks and notebooks."""
    for part in given:
        if part != "--run":
            take(Path(part))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    if "--run" in given:
        os.environ["MPLBACKEND"] = "agg"
        drawn(GALLERY, DOCS)
        STARTED.write_text(printed(STARTED.read_text(encoding="utf-8")), encoding="utf-8")
        for path in NOTEBOOKS:
            made = executed(json.loads(path.read_text(encoding="utf-8")))
            path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
