"""The options and arguments of the commands, by name."""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import Field, fields
from operator import getitem
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from cf2 import options as spec


def _at_home(path: Path | None) -> Path | None:
    """A path whose `~NAME` is somebody's home."""
    try:
        return None if path is None else path.expanduser()
    except RuntimeError as error:
        raise typer.BadParameter(f"Expected an existing home directory, but got {str(path)!r}.") from error


def _named(path: Path | None) -> Path | None:
    """A path to which an ending can be added."""
    if path is not None and not path.name:
        raise typer.BadParameter(f"Expected a name for the model, such as models/first, but got {str(path)!r}.")
    return _at_home(path)


def _plain_file(path: Path) -> Path:
    """A path that a file may be written to: a device would be replaced by it, and a pipe would never take it."""
    if os.path.lexists(path) and not path.is_file():
        raise typer.BadParameter(f"Expected the path of a file, but got {str(path)!r}, which is not a regular file.")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--data-root", callback=_at_home, help="Directory of raw data sets. Default: CF2_DATA, else the cache."
    ),
]
Engine = Annotated[str, typer.Option(help="Engine that runs the work: local, processes or ray.")]
Workers = Annotated[int | None, typer.Option(min=1, metavar="<int>", help="Number of workers. Default: all cores.")]
Address = Annotated[str | None, typer.Option(help="Address of the Ray cluster. Default: a local cluster.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")]
RunPath = Annotated[Path, typer.Argument(help="Run directory, created by `cf2 explain … --out`.")]
Directory = Annotated[Path, typer.Option("--out", help="Directory for the report.")]
Nodes = Annotated[int, typer.Option(min=1, help="Number of nodes to explain.")]
Dataset = Annotated[str, typer.Argument(help="Name of a data set; see `cf2 datasets`.")]
Arch = Annotated[
    str | None,
    typer.Option(help="gcn, gin, gat or sage; rgcn or hgt for typed graphs. Default: the data set's recipe."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the split and the initial weights.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Number of epochs. Default: the data set's recipe.")]
TrainPath = Annotated[Path | None, typer.Option("--out", callback=_named, help="Path to save to, without suffix.")]
ExplainDataset = Annotated[
    str | None, typer.Argument(help="Data set; its shipped model is used unless --checkpoint is given.")
]
Data = Annotated[
    str | None,
    typer.Option(
        help="MODULE:FUNCTION that returns (model, data); runs your code. With --chemprop: a CSV of molecules."
    ),
]
Chemprop = Annotated[
    Path | None, typer.Option(callback=_at_home, help="Chemprop checkpoint, or directory of an ensemble, for --data.")
]
ExplainNodes = Annotated[str | None, typer.Option(help="Ids of nodes or graphs, such as 3,17,40-44.")]
ExplainPairs = Annotated[str | None, typer.Option(help="Node pairs for link prediction models, such as 3:17,4:9.")]
ExplainPath = Annotated[Path | None, typer.Option("--out", help="Run directory. Default: a new directory under runs/.")]
RunsPath = Annotated[Path, typer.Argument(help="Directory that contains the runs.")]
Checkpoint = Annotated[Path | None, typer.Option(callback=_named, help="Model saved by `cf2 train`.")]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="<str>", help="Method setting, such as effort=quick. May be repeated."),
]
Seeds = Annotated[int | None, typer.Option(min=1, max=1000, metavar="<int>", help="Number of seeds to explain with.")]
EvaluateMethod = Annotated[str | None, typer.Option(help="Method of the run. Default: all methods.")]
ReportPath = Annotated[Path, typer.Option("--out", "-o", callback=_plain_file, help="HTML file to write.")]
Pictures = Annotated[int, typer.Option(min=0, help="Number of instances to draw.")]
Patterns = Annotated[bool, typer.Option("--patterns", help="Also show the patterns of each class; runs the model.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 selects a free port.")]
Trust = Annotated[bool, typer.Option("--trust", help="Run the function that loads the model and data. Read it first.")]
SameData = Annotated[str | None, typer.Option("--data", help="Trust the run by naming its MODULE:FUNCTION.")]
Host = Annotated[str, typer.Option(help="Host to listen on; the default accepts only this machine.")]
ReproducePath = Annotated[Path, typer.Option("--out", help="Directory for tables, figures and runs.")]
TableName = Annotated[list[str] | None, typer.Option("--table", help="Table to fill: causal, truth, robustness, …")]
Figure = Annotated[list[str] | None, typer.Option(help="Figure to draw: sizes, alpha or cases.")]
Datasets = Annotated[str | None, typer.Option(help="Data sets, separated by commas.")]
Methods = Annotated[str | None, typer.Option(help="Methods, separated by commas.")]
ReproduceSeeds = Annotated[int, typer.Option(min=1, max=1000, help="Number of base models per data set.")]
Instances = Annotated[str, typer.Option(help="Maximum number of instances per base model, or all.")]
ReproduceEngine = Annotated[
    str | None, typer.Option(help="local, processes or ray. Default: processes with two cores.")
]
Full = Annotated[bool, typer.Option("--full", help="Also measure the curves of the benchmark page.")]


MAX_IDS = 10_000_000


class WithSettings(TyperCommand):
    """A command with `--set`: an option that is not there, but is a setting of a method, is named as such."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer's own."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown = getattr(error, "option_name", None)
            if isinstance(unknown, str) and (name := _setting_near(unknown, [n for p in self.params for n in p.opts])):
                hint = f"{unknown} is not an option. Method settings are given as --set NAME=VALUE: --set {name}=…"
                raise typer.BadParameter(hint, ctx=ctx) from None
            raise


def _setting_near(unknown: str, options: list[str]) -> str:
    """The setting of a method that an unknown option stands for; empty where an option is as near to it."""
    from cf2.methods import registry

    settings = {f.name for name in registry.names() for f in fields(registry.get(name).settings)}
    names = [option.lstrip("-") for option in options]  # dashes would make short names look alike
    wanted = unknown.lstrip("-").replace("_", "-").lower()
    near = next(iter(difflib.get_close_matches(wanted, [*names, *sorted(settings)], n=1)), "")
    return "" if near in names else near


def with_spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that takes `**options` one option for every option of a Spec, with the same name and meaning."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    own += [_parameter(f) for f in spec.options() if f.name != "settings"]  # `--set NAME=VALUE` gives these
    return _with_parameters(command, own)


def _with_parameters(command: Callable[..., Any], parameters: list[inspect.Parameter]) -> Callable[..., Any]:
    """The command, whose options typer reads from these parameters."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


To = Annotated[str | None, typer.Option("--to", "--target", help="Class to reach. Default: any other class.")]


def as_counterfactual(explain: Callable[..., Any]) -> Callable[..., Any]:
    """`cf2 counterfactual`: `cf2 explain` with its question fixed and `--to` in place of `--target`."""

    def counterfactual(to: str | None = None, **given: Any) -> Any:
        return explain(question="counterfactual", target=to, **given)

    own = [p for p in inspect.signature(explain).parameters.values() if p.name not in ("question", "target")]
    own.append(inspect.Parameter("to", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=To))
    return _with_parameters(counterfactual, own)


_KINDS: dict[str, Any] = {  # of the options of a Spec that are neither words nor what their default is
    "method": list[str] | None,
    "directed": bool | None,
    **dict.fromkeys(("tolerance", "surely"), float | None),
    **dict.fromkeys(("units", "edits"), str),
    **dict.fromkeys(("seed", "max_units", "sizes", "contexts"), int | None),
}
_METAVARS = {list[str] | None: "<str>"}
_DEFAULTS: dict[str, str | None] = dict.fromkeys(("method", "costs", "added_attributes", "contexts"))
_DEFAULTS |= {"units": ",".join(spec.Spec().units), "edits": ",".join(spec.Spec().edits)}
DEFAULT_CONTEXTS = 32  # of `cf2 explain`: at most a third of what a search costs, on the shipped models
_MORE = {
    "method": " May be repeated.",
    "question": " Several, such as why,counterfactual, give one row each.",
    "contexts": f" Default: {DEFAULT_CONTEXTS}, or 256 with --surely.",
}


# The help of `cf2 explain` by topic. What can be negated (--no-…) has a panel of its own, because it takes two columns.
PANELS = {
    "What to ask": "method units question target alternatives contexts contexts_add surely seed",
    "Counterfactuals": "edits candidates costs one_hot added_attributes valid atoms",
    "Constraints": "keep forbid groups sizes max_units reduce",
    "The model": "output tolerance masking device level",
    "Switches": "search connected charges directed leave_out_pair",
    "Typed graphs": "node_type edge_type reverse",
}


def _parameter(option: Field[Any]) -> inspect.Parameter:
    """An option of a Spec as an option of a command: a flag, a number, or a word."""
    name = option.name.replace("_", "-")
    usual = type(option.default) if isinstance(option.default, int) else str | None  # a flag is an int, too
    kind = _KINDS.get(option.name, usual)
    default = _DEFAULTS.get(option.name, option.default)
    flag = f"--{name}/--no-{name}" if bool in (kind, *get_args(kind)) else f"--{name}"
    meaning = spec.meanings()[option.name] + _MORE.get(option.name, "")
    panel = next((topic for topic, options in PANELS.items() if option.name in options.split()), "Other options")
    deprecated = option.name == "robust"
    given = typer.Option(flag, help=meaning, rich_help_panel=panel, metavar=_METAVARS.get(kind), hidden=deprecated)
    described = getitem(Annotated, (kind, given))  # what `Annotated[kind, given]` is, for a `kind` that is a value
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=described)


def number_or_all(option: str, text: str) -> int | None:
    """How many; None for "all".

    >>> number_or_all("--instances", "20"), number_or_all("--instances", "all")
    (20, None)
    """
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        raise typer.BadParameter(f"Expected a number of at least 1, or all, for {option}, but got {text!r}.")
    return int(text)


def parse_setting(text: str) -> tuple[str, Any]:
    """`epochs=100` -> ("epochs", 100); what is not JSON is a string."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise typer.BadParameter(f"Expected a setting as NAME=VALUE, but got {text!r}.")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def parse_ids(text: str) -> list[int]:
    """`3,17,40-44` -> the seven ids it names."""
    found: list[int] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", part)
        if numbers is None:
            words = " Without --nodes, the test nodes or graphs are explained." if re.search("[a-z]", text) else ""
            raise typer.BadParameter(f"Expected ids such as 3,17,40-44, but got {text!r:.80}.{words}")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last < first:
            raise typer.BadParameter(f"Expected a range from small to large, such as {last}-{first}, but got {part!r}.")
        if last - first >= MAX_IDS - len(found):
            raise typer.BadParameter(f"Expected at most {MAX_IDS:,} ids, but got more in {text!r:.80}.")
        found += range(first, last + 1)
    return found


def parse_pairs(text: str) -> list[tuple[int, int]]:
    """`3:17,4:9` -> the two pairs."""
    found = []
    for part in text.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,18})\s*:\s*([0-9]{1,18})\s*", part)
        if numbers is None:
            raise typer.BadParameter(f"Expected pairs such as 3:17,4:9, but got {text!r:.80}.")
        found.append((int(numbers[1]), int(numbers[2])))
    return found


def parse_keys(nodes: str | None, pairs: str | None, options: dict[str, Any]) -> list[Any] | None:
    """What --nodes or --pairs name, None for neither; pairs are a level of their own."""
    if nodes is not None and pairs is not None:
        raise typer.BadParameter("Give either --nodes or --pairs.")
    if pairs is None:
        return None if nodes is None else parse_ids(nodes)
    options["level"] = "pair"
    return parse_pairs(pairs)


def check_level(name: str, level: str, nodes: str | None, pairs: str | None) -> None:
    """Refuse nodes of what is explained by pairs, and pairs of what is explained by graphs."""
    if nodes is not None and level == "pair":
        raise typer.BadParameter(f"{name} is explained by node pairs; use --pairs 3:17,4:9 instead of --nodes.")
    if pairs is not None and level == "graph":
        raise typer.BadParameter(f"{name} is explained by graphs; use --nodes 3,17,40-44 instead of --pairs.")


def one_of(what: str, value: str, known: Any) -> str:
    """A name that must be known: bad usage (exit 2) if it is not."""
    from cf2.errors import unknown_name

    if value not in known:
        raise typer.BadParameter(str(unknown_name(what, value, known)))
    return value
