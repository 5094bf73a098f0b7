"""What every command shares: progress and hints on stderr, tables or JSON alone on stdout."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console()
err = Console(stderr=True)


def _escape(text: str) -> str:
    """Square brackets as they are, not as rich's markup."""
    return text.replace("[", r"\[")


def tell(text: str, *, error: bool = False) -> None:
    """A line for the reader, on stderr, so that stdout stays what was asked for."""
    err.print(f"{'[bold red]Error:[/] ' if error else ''}{_escape(text)}", highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """A line on stdout that is no table, if there is anything to say."""
    if text:
        out.print(_escape(text), highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """JSON on stdout and nothing else; numbers that JSON does not have become null."""
    print(json.dumps(_clean(value), indent=2, ensure_ascii=False))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A plain table: words to the left, numbers to the right."""
    shown = Table(title=title, title_justify="left", header_style="bold", title_style="bold")
    for position, name in enumerate(columns):
        numbers = position and all(_numeric(str(row[position])) for row in rows)
        shown.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(_escape(str(cell)) for cell in row))
    return shown


def _numeric(text: str) -> bool:
    return text == "–" or text.replace(".", "").replace(",", "").replace("-", "").isdigit()


@contextmanager
def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr; none if that is not a terminal. The function it gives takes steps forward."""
    if not err.is_terminal:
        yield lambda steps: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda steps: progress.advance(task, steps)


@contextmanager
def named_bar(label: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar whose label and total change: the function takes (label, done, total)."""
    if not err.is_terminal:
        yield lambda text, done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    ) as progress:
        task = progress.add_task(label, total=None)
        yield lambda text, done, total: progress.update(task, description=text, completed=done, total=total)


def percent(value: float | None) -> str:
    """0.7207 -> 72.1; nothing where there is no number."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def cell(value: Any) -> str:
    """A value of any kind in a cell of a table."""
    if isinstance(value, bool):
        return "yes" if value else "–"
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


COMPARED = ("method", "found", "PN", "PS", "F_NS", "size", "F1", "runs", "sec.")
ASKED = {"factual": ("ps",), "counterfactual": ("pn",)}  # of any other question all three shares mean something


def compared(row: dict[str, Any]) -> list[str]:
    """One method's row of a comparison, under `COMPARED`; of PN, PS and F_NS what its question asks for."""
    every = ("pn", "ps", "fns")
    asked = ASKED.get(row.get("question", "why"), every)
    shares = [percent(row.get("found"))] + [percent(row.get(name) if name in asked else None) for name in every]
    cost = [f"{row['evaluations']:.0f}", f"{row['seconds']:.3f}"]
    return [row.get("label", row["method"]), *shares, f"{row['size']:.2f}", percent(row.get("f1")), *cost]


def _refusal(row: dict[str, Any], max_units: int | None) -> str:
    """Which instances of a method's row were too large to be explained."""
    large = row["refused"]
    named = ", ".join(map(str, large[:6])) + (", …" if len(large) > 6 else "")
    return (
        f"{row['label']}: {len(large)} of {row['n']} were not explained, having more units than "
        f"--max-units {max_units}: {named}. Add --reduce gradient to explain them too."
    )


def _of_default(row: dict[str, Any]) -> str:
    """How many predictions of a row nothing that is removed can change, and what to ask about them instead."""
    edits = " with more --edits, --candidates or another --target" if row["question"] == "counterfactual" else ""
    ask = "" if edits else " with --question counterfactual --edits remove,add"
    return (
        f"{row['label']}: {row['default']} of {row['n']} predictions are of the model's default class: it gives them "
        f"also when everything that can be removed is gone. Ask{ask or edits} what would have to change."
    )


def remarks(rows: Sequence[dict[str, Any]], max_units: int | None) -> None:
    """What a table does not show of its rows: stability, what was too large, and predictions of the default class."""
    for row in rows:
        if "stability" in row:
            out.print(f"{row['label']}: mean Jaccard overlap over seeds {row['stability']:.3f}", highlight=False)
        if "refused" in row:
            tell(_refusal(row, max_units))
        if row.get("default"):
            out.print(_of_default(row), soft_wrap=True, highlight=False)
