"""The options and arguments of the commands, by name."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import os
import re
from collections.abc import Callable
from dataclasses import Field, fields
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
        raise typer.BadParameter(f"Expected a home that there is, but got {str(path)!r}.") from error


def _named(path: Path | None) -> Path | None:
    """A path to which an ending can be added."""
    if path is not None and not path.name:
        raise typer.BadParameter(f"Expected a name for the model, such as models/first, but got {str(path)!r}.")
    return _at_home(path)


def _plain_file(path: Path) -> Path:
    """A path that a file may be written to: a device would be replaced by it, and a pipe would never take it."""
    if os.path.lexists(path) and not path.is_file():
        raise typer.BadParameter(f"Expected the path of a file, but got {str(path)!r}, which is something else.")
    return path


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
Root = Annotated[
    Path | None,
    typer.Option("--data-root", callback=_at_home, help="Where the raw data sets are; else CF2_DATA, else the cache."),
]
Engine = Annotated[str, typer.Option(help="Where the work runs: local, processes or ray.")]
Workers = Annotated[int | None, typer.Option(min=1, help="How many workers; all cores if not given.")]
Address = Annotated[str | None, typer.Option(help="The Ray cluster to use; a local one if not given.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
RunPath = Annotated[Path, typer.Argument(help="The directory of a run, made by `cf2 explain … --out`.")]
Directory = Annotated[Path, typer.Option("--out", help="Where the report goes.")]
Nodes = Annotated[int, typer.Option(min=1, help="How many nodes to explain.")]
Retrain = Annotated[bool, typer.Option("--retrain", help="Train the base model instead of loading it.")]
Dataset = Annotated[str, typer.Argument(help="The name of a data set; see `cf2 datasets`.")]
Arch = Annotated[
    str | None,
    typer.Option(help="gcn, gin, gat or sage; typed graphs: rgcn or hgt. As the data set's recipe says, if not given."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides the split and the first weights.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="As the data set's recipe says, if not given.")]
TrainPath = Annotated[Path | None, typer.Option("--out", callback=_named, help="Where to save; without ending.")]
ExplainDataset = Annotated[str | None, typer.Argument(help="A data set with its shipped or given model.")]
Data = Annotated[
    str | None,
    typer.Option(
        help="MODULE:FUNCTION that returns (model, data). This runs your code. With --chemprop: a CSV of molecules."
    ),
]
Chemprop = Annotated[
    Path | None, typer.Option(callback=_at_home, help="A Chemprop checkpoint, to explain the molecules of --data.")
]
ExplainNodes = Annotated[str | None, typer.Option(help="Ids of nodes or graphs, such as 3,17,40-44.")]
ExplainPairs = Annotated[str | None, typer.Option(help="Pairs of nodes for a model of links, such as 3:17,4:9.")]
ExplainPath = Annotated[
    Path | None,
    typer.Option("--out", help="The directory of the run; if not given, a new one under runs/ that says what it is."),
]
OwnSizes = Annotated[
    bool,
    typer.Option(
        "--own-sizes",
        help="Let methods that only rank choose by their own k or threshold, "
        "and not as many units as the answers of the first method that searches have.",
    ),
]
RunsPath = Annotated[Path, typer.Argument(help="The directory that the runs are in.")]
Checkpoint = Annotated[Path | None, typer.Option(callback=_named, help="A model saved by `cf2 train`.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="A setting of the method, such as effort=quick.")]
Seeds = Annotated[int | None, typer.Option(min=1, max=1000, help="Explain under so many seeds.")]
EvaluateMethod = Annotated[str | None, typer.Option(help="One method of the run; all if not given.")]
ReportPath = Annotated[Path, typer.Option("--out", "-o", callback=_plain_file, help="The HTML file to write.")]
Pictures = Annotated[int, typer.Option(min=0, help="How many instances to draw.")]
Patterns = Annotated[bool, typer.Option("--patterns", help="Show the patterns of each class, too; runs the model.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
Trust = Annotated[bool, typer.Option("--trust", help="Run the function of the run's model and data. Read it first.")]
SameData = Annotated[str | None, typer.Option("--data", help="As --trust, by naming the MODULE:FUNCTION of the run.")]
Host = Annotated[str, typer.Option(help="Only this machine, unless told otherwise.")]
ReproducePath = Annotated[Path, typer.Option("--out", help="Where tables, figures and runs go.")]
TableName = Annotated[list[str] | None, typer.Option("--table", help="causal, truth, robustness, …")]
Figure = Annotated[list[str] | None, typer.Option(help="sizes, alpha or cases.")]
Datasets = Annotated[str | None, typer.Option(help="Names, separated by commas.")]
Methods = Annotated[str | None, typer.Option(help="Names, separated by commas.")]
ReproduceSeeds = Annotated[int, typer.Option(min=1, max=1000, help="So many base models of each data set.")]
Instances = Annotated[str, typer.Option(help="Explain at most so many under each base model, or all.")]
ReproduceEngine = Annotated[str | None, typer.Option(help="local, processes (with two cores, if not given) or ray.")]
Full = Annotated[bool, typer.Option("--full", help="Measure the curves of the documentation, too.")]


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
                hint = f"{unknown} is no option. Settings of methods are given as --set NAME=VALUE: --set {name}=…"
                raise typer.BadParameter(hint, ctx=ctx) from None
            raise


def _setting_near(unknown: str, options: list[str]) -> str:
    """The setting of a method that an unknown option stands for; empty where an option is as near to it."""
    from cf2.methods import registry

    settings = {f.name for name in registry.names() for f in fields(registry.get(name).settings)}
    known = [*options, *(f"--{name}" for name in sorted(settings))]
    near = next(iter(difflib.get_close_matches(unknown.replace("_", "-").lower(), known, n=1)), "")
    return "" if near in options else near.removeprefix("--")


def with_spec_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that takes `**options` one option for every option of a Spec, with the same name and meaning."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    own += [_parameter(f) for f in spec.options() if f.name != "settings"]  # `--set NAME=VALUE` gives these

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        return command(**given)

    called.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in own}
    return called


_KINDS: dict[str, Any] = {  # of the options of a Spec that are no words
    "method": list[str] | None,
    "directed": bool | None,
    "tolerance": float | None,
    **dict.fromkeys(("search", "connected", "leave_out_pair"), bool),
    **dict.fromkeys(("alternatives", "robust"), int),
    **dict.fromkeys(("units", "edits"), str),
    **dict.fromkeys(("seed", "max_units", "sizes"), int | None),
}
_DEFAULTS: dict[str, str | None] = dict.fromkeys(("method", "costs", "added_attributes"))
_DEFAULTS |= {"units": ",".join(spec.Spec().units), "edits": ",".join(spec.Spec().edits)}
_MORE = {"method": " May be given several times.", "question": " Several, as why,counterfactual, make a row each."}


def _parameter(option: Field[Any]) -> inspect.Parameter:
    """An option of a Spec as an option of a command: a flag, a number, or a word."""
    kind, name = _KINDS.get(option.name, str | None), option.name.replace("_", "-")
    default = _DEFAULTS.get(option.name, option.default)
    flag = f"--{name}/--no-{name}" if bool in (kind, *get_args(kind)) else f"--{name}"
    meaning = option.metadata["meaning"] + _MORE.get(option.name, "")
    described = Annotated.__class_getitem__((kind, typer.Option(flag, help=meaning)))  # type: ignore[attr-defined]
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


def parse_target(text: str | None) -> int | str | None:
    """A class by its number or by its name.

    >>> parse_target("2"), parse_target("NR-AR")
    (2, 'NR-AR')
    """
    return int(text) if text is not None and text.isdecimal() else text


def parse_questions(text: str) -> list[str]:
    """`why,counterfactual` -> the questions it names, each once; a Spec refuses those that there are not."""
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


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
        raise typer.BadParameter(f"{name} is explained by pairs of nodes: --pairs 3:17,4:9 in place of --nodes.")
    if pairs is not None and level == "graph":
        raise typer.BadParameter(f"{name} is explained by graphs: --nodes 3,17,40-44 in place of --pairs.")


def one_of(what: str, value: str, known: Any) -> str:
    """A name that must be known: bad usage (exit 2) if it is not."""
    from cf2.errors import unknown_name

    if value not in known:
        raise typer.BadParameter(str(unknown_name(what, value, known)))
    return value
