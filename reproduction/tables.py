"""Tables of results with ours, the published value and the difference: terminal, CSV, LaTeX and Markdown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from cf2.errors import require
from cf2.storage import write_bytes
from reproduction.published import WAYS, WHOLE, is_truth

if TYPE_CHECKING:
    from rich.table import Table as RichTable

Row = Mapping[str, Any]
NONE = "–"
EQUAL = "equal scores"


@dataclass(frozen=True)
class Layout:
    """What a table shows: fields that name a row, and fields with numbers (`%` where they are fractions)."""

    title: str
    names: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, str], ...]  # field and heading; a heading with % shows 100 times the value
    ranges: tuple[str, ...] = ()  # fields whose 95 % interval is shown


LAYOUTS: dict[str, Layout] = {
    "datasets": Layout(
        "Data sets",
        (("dataset", "data set"), ("task", "task")),
        (
            ("graphs", "graphs"),
            ("nodes", "nodes per graph"),
            ("edges", "edges per graph"),
            ("columns", "both directions"),
            ("classes", "classes"),
            ("features", "features"),
        ),
    ),
    "mutag": Layout(
        "Mutag: molecules with and without benzene-NO₂",
        (("label", "label"),),
        (("with_motif", "with"), ("without_motif", "without")),
    ),
    "accuracy": Layout(
        "Accuracy of the base models on test instances",
        (("dataset", "data set"), ("model", "model")),
        (("epochs", "epochs"), ("accuracy", "accuracy %"), ("edgeless", "kept without edges %")),
        ranges=("accuracy",),
    ),
    "causal": Layout(
        "Necessity and sufficiency, by removal",
        (("dataset", "data set"), ("method", "method")),
        (("n", "n"), ("pn", "PN %"), ("ps", "PS %"), ("fns", "F_NS %"), ("size", "#exp"), ("ceiling", "ceiling %")),
        ranges=("fns", "size"),
    ),
    "reached": Layout(
        "Is the published F_NS reached by the paper's procedure?",
        (("dataset", "data set"), ("reached", "reached"), ("verified", "the verified search")),
        (
            *(("lam", "its λ, F_NS %"), ("rule", "its rule, F_NS %"), ("code", "its code, F_NS %")),
            *(("cf2", "cf2, F_NS %"), ("size", "cf2, #exp")),
        ),
    ),
    "truth": Layout(
        "Explanations against the planted motif",
        (("dataset", "data set"), ("method", "method")),
        (("acc", "Acc %"), ("pr", "Pr %"), ("re", "Re %"), ("f1", "F1 %"), ("auc", "AUC %")),
        ranges=("f1",),
    ),
    "correlation": Layout(
        "Correlation of F_NS with the truth metrics over methods",
        (("dataset", "data set"), ("pair", "pair"), ("group", "methods")),
        (("tau", "τ"), ("rho", "ρ")),
    ),
    "robustness": Layout(
        "GNNX-Bench's questions: ten edges, stability, feasibility",
        (("dataset", "data set"), ("method", "method")),
        (
            ("n", "n"),
            ("size", "#exp"),
            ("sufficiency", "sufficient %"),
            ("necessity", "necessary %"),
            ("both", "both %"),
            ("noise_1", "1 noise edge"),
            ("noise_3", "3"),
            ("noise_5", "5"),
            ("dropped_sufficiency", "sufficient, isolated dropped %"),
            ("dropped_necessity", "necessary, isolated dropped %"),
            ("overlap_1", "overlap of ten, 1"),
            ("overlap_5", "5"),
            ("still_sufficient", "old set sufficient after 1 %"),
            ("still_necessary", "old set necessary after 1 %"),
            ("seeds_overlap", "seeds"),
            ("models_overlap", "models"),
            ("connected", "connected %"),
            ("valid", "valid rest %"),
        ),
    ),
    "attribution": Layout(
        "Against the best of the acceptable truths",
        (("dataset", "data set"), ("model", "model"), ("method", "method")),
        (
            ("n", "n"),
            ("accuracy", "accuracy %"),
            ("f1", "F1 %"),
            ("jaccard", "Jaccard %"),
            ("fns", "F_NS %"),
            ("size", "#exp"),
        ),
        ranges=("f1",),
    ),
    "alpha": Layout(
        "Influence of α on the paper's procedure",
        (("dataset", "data set"), ("alpha", "α")),
        (("pn", "PN %"), ("ps", "PS %"), ("fns", "F_NS %"), ("f1", "F1 %"), ("size", "#exp")),
    ),
}


def number(value: float, percent: bool) -> str:
    """Two digits after the point; none for whole numbers.

    >>> number(0.98701, True), number(6, False), number(30.317, False)
    ('98.70', '6', '30.32')
    """
    if percent:
        return f"{100 * value:.2f}"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"


def collapsed(row: Row) -> bool:
    """Whether a row is no result: most of its instances have equal scores, so the order of the units was chosen."""
    return float(row.get("equal") or 0) > 0.5


def cell(row: Row, field: str, percent: bool, ranged: bool = False) -> str:
    """Ours, in square brackets its interval if asked for, and in round ones the published value and the difference."""
    ours, theirs = row.get(field), (row.get("published") or {}).get(field)
    if collapsed(row) and field not in ("n", "ceiling", "accuracy"):
        return EQUAL
    if ours is None:
        return NONE if theirs is None else f"{NONE} ({number(theirs, percent)})"
    shown = number(ours, percent) + (_range(row, field, percent) if ranged else "")
    if theirs is None:
        return shown
    gap = (100 if percent else 1) * (ours - theirs)
    whole = not percent and float(ours).is_integer() and float(theirs).is_integer()
    difference = f"{gap:+.0f}" if whole else f"{gap:+.2f}"
    return f"{shown} ({number(theirs, percent)}, {difference})"


def _range(row: Row, field: str, percent: bool) -> str:
    low, high = (row.get("interval") or {}).get(field, (None, None))
    factor = 100 if percent else 1
    return "" if low is None else f" [{factor * low:.1f}, {factor * high:.1f}]"


def cells(layout: Layout, row: Row) -> list[str]:
    """One row of a table as text."""
    names = [str(row.get(field, "")) for field, _ in layout.names]
    return names + [cell(row, field, "%" in heading, field in layout.ranges) for field, heading in layout.values]


def rows_of(result: Mapping[str, Any], table: str) -> list[Row]:
    """The rows of one table of what `reproduce` returned."""
    if table == "alpha":
        return list(result.get("figures", {}).get("alpha", []))
    return [row for row in result["rows"] if row["table"] == table]


def present(result: Mapping[str, Any]) -> list[str]:
    """The tables that have rows, in the paper's order."""
    return [table for table in LAYOUTS if rows_of(result, table)]


def terminal(result: Mapping[str, Any]) -> list[RichTable]:
    """One rich table each: ours (published, difference); the best F of every data set in bold."""
    from rich.table import Table

    shown = []
    for name in present(result):
        layout, rows = LAYOUTS[name], rows_of(result, name)
        table = Table(title=f"{layout.title}: ours (published, difference)", title_justify="left")
        for field, heading in (*layout.names, *layout.values):
            table.add_column(heading, justify="left" if (field, heading) in layout.names else "right")
        best = best_rows(rows, "fns" if name == "causal" else "f1")
        for position, row in enumerate(rows):
            last = position + 1 == len(rows) or rows[position + 1].get("dataset") != row.get("dataset")
            table.add_row(*cells(layout, row), style="bold" if position in best else None, end_section=last)
        shown.append(table)
    return shown


def best_rows(rows: Sequence[Row], field: str) -> set[int]:
    """The places of the rows with the highest value in their data set; the planted motif does not compete."""
    competing = {
        position: row
        for position, row in enumerate(rows)
        if row.get(field) is not None
        and row.get("method") not in (None, WHOLE)
        and not (is_truth(row["method"]) or collapsed(row))
    }
    best: dict[Any, float] = {}
    for row in competing.values():
        best[row["dataset"]] = max(best.get(row["dataset"], 0.0), row[field])
    return {position for position, row in competing.items() if row[field] == best[row["dataset"]]}


def _frame(result: Mapping[str, Any], table: str) -> pd.DataFrame:
    """A table as text, a column per heading."""
    layout = LAYOUTS[table]
    headings = [heading for _, heading in (*layout.names, *layout.values)]
    return pd.DataFrame([cells(layout, row) for row in rows_of(result, table)], columns=headings)


def markdown(result: Mapping[str, Any], table: str) -> str:
    """A table in Markdown (pandas' own needs another package)."""
    layout, frame = LAYOUTS[table], _frame(result, table)
    rule = "|" + " --- |" * len(layout.names) + " ---: |" * len(layout.values)
    lines = ["| " + " | ".join(row) + " |" for row in [frame.columns, *frame.to_numpy()]]
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def latex(result: Mapping[str, Any], table: str) -> str:
    """A table in LaTeX with booktabs."""
    layout = LAYOUTS[table]
    columns = "l" * len(layout.names) + "r" * len(layout.values)
    text: str = _frame(result, table).to_latex(index=False, escape=True, column_format=columns)
    return text.translate(_TEX)


_TEX = str.maketrans({"–": "--", "τ": r"$\tau$", "ρ": r"$\rho$", "α": r"$\alpha$", "λ": r"$\lambda$", "₂": "$_2$"})


def comma_separated(result: Mapping[str, Any], table: str) -> str:
    """A table as CSV: fractions as they are, with `published_` and `difference_` columns, and intervals."""
    rows = [dict(_flat(row)) for row in rows_of(result, table)]
    return pd.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n")


def _flat(row: Row) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if name == "published":
            for field, theirs in value.items():
                yield f"published_{field}", theirs
                if row.get(field) is not None:
                    yield f"difference_{field}", row[field] - theirs
        elif name == "interval":
            for field, (low, high) in value.items():
                yield f"{field}_low", low
                yield f"{field}_high", high
        elif name not in ("seeds", "figure", "table") and not name.endswith("_at"):
            yield name, value


def write_files(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Every table as CSV, LaTeX and Markdown."""
    written = []
    for table in present(result):
        for ending, make in (("csv", comma_separated), ("tex", latex), ("md", markdown)):
            written.append(folder / f"{table}.{ending}")
            write_bytes(written[-1], make(result, table).encode())
    return written


# -- the page of results ------------------------------------------------------------------------------------


def update_page(page: str | Path, result: Mapping[str, Any], out: str | Path) -> Path:
    """Put the tables into a page between `<!-- table NAME -->` and `<!-- end NAME -->`; the prose stays.

    `about` takes the date, versions and cost; the figures are copied to `images` beside the page.
    """
    page = Path(page)
    require(page.is_file(), "Expected the page of results", got=f"{str(page)!r}, which is not there")
    text = page.read_text(encoding="utf-8")
    for table in LAYOUTS:
        text = _between(text, table, on_page(result, table))
    text = _between(text, "about", about_lines(result))
    for file in result.get("files", []):
        (page.parent / "images").mkdir(exist_ok=True)
        shutil.copyfile(Path(out) / file, page.parent / "images" / Path(file).name)
    page.write_text(text, encoding="utf-8")
    return page


def on_page(result: Mapping[str, Any], table: str) -> str:
    """A table as the page shows it, or the line that says that it was not filled."""
    if rows_of(result, table):
        return markdown(result, table)
    which = "--figure" if table == "alpha" else "--table"
    return f"*Not filled by this run; `cf2 reproduce {which} {table}` fills it.*\n"


def reached_line(result: Mapping[str, Any]) -> str:
    """In how many columns the published figures are reached: by the best of some rows, and by each alone."""
    rows = rows_of(result, "reached")

    def reached(*ways: str) -> int:
        return sum(max(row.get(way) or 0.0 for way in ways) >= row["published"]["lam"] for row in rows)

    coded = sum(row.get("code") is not None for row in rows)
    ceiling = sum(row["verified"].startswith("at") for row in rows)
    smaller = sum(row["size"] <= row["published"]["size"] for row in rows)
    f1 = [row for row in rows_of(result, "truth") if row["method"] == "cf2-relaxed"]
    near = [row["dataset"] for row in f1 if row["f1"] >= row["published"]["f1"] - 0.05]
    return (
        f"Of {len(rows)} columns, the paper's procedure is at or above the published F_NS in {reached(*WAYS)} if the "
        f"best of its three rows is taken in each, and in {reached('lam', 'rule')} if the better λ is. It is in "
        f"{reached('lam')} with the paper's λ alone, in {reached('rule')} with its rule alone, and in "
        f"{reached('code')} of {coded} as in its code. `cf2` is at the ceiling in {ceiling}, and its sets are at most "
        f"as large as the published ones in {smaller}. "
        f"F1 of `cf2-relaxed` is at most five points below the published one on {len(near)} of {len(f1)} data sets."
    )


def about_lines(result: Mapping[str, Any]) -> str:
    """When, with what and on which base models the tables were made."""
    about = result.get("about", {})
    made = ", ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    most = about.get("instances")
    explained = "All instances that the paper explains." if most is None else f"At most {most} instances under each."
    lines = [
        f"Made on {about.get('date', 'an unknown day')[:10]} by `cf2 reproduce`.",
        f"Base models: {about.get('base_models', 'unknown')}. {explained} Versions: {made}.",
    ]
    if "cpu_minutes" in about:
        minutes = about["seconds"] / 60
        lines.append(f"It took {minutes:.0f} minutes, in which it had {about['cpu_minutes']:.0f} minutes of a core.")
    lines += [f"Missing: {name}. {why}" for name, why in result.get("missing", {}).items()]
    return "\n".join(lines) + "\n"


def _between(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n{match[2]}", text)
