"""The commands `amplifier-slack module …`, for module authors."""

from __future__ import annotations

import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import click
import yaml

from orchestrator_interactive.json_limits import MAX_NESTING, nesting
from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.loading.location import package_of
from orchestrator_interactive.validation import MODULE_TYPES, TIME_LIMIT_S, rendered
from orchestrator_interactive.validation import validate as validated
from service.cli.setup import NotUsable
from service.config.config import Environment
from service.config.credentials import secret_options, secrets
from service.logging import hide_secrets

if TYPE_CHECKING:
    from orchestrator_interactive.validation import ModuleType, Outcome

_COLOURS: dict[Outcome, str] = {"passed": "green", "failed": "red", "warning": "yellow", "not checked": "cyan"}
_FAILED = 1
_NAME = re.compile(r"tool(-[a-z][a-z0-9]*)+")
_NEW_TOOL = Path(__file__).parents[1] / "new_tool"


@click.group()
def module() -> None:
    """Tools for module authors."""


@module.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--type", "module_type", type=click.Choice(MODULE_TYPES), help="Module type. Default: detected.")
@click.option("--config", metavar="YAML", help="The module's configuration: a YAML file or inline YAML.")
@click.option(
    "--input",
    "tool_input",
    metavar="YAML",
    help="Input for the module's tool; the call may have side effects. For several tools: a mapping by tool name.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=TIME_LIMIT_S,
    show_default=True,
    help="Time limit of one check.",
)
def validate(
    path: Path,
    module_type: ModuleType | None,
    config: str | None,
    tool_input: str | None,
    time_limit_s: float,
) -> None:
    """Check a module's structure and behaviour against the contract of its type.

    PATH is a project, a package, or a Python file. The module runs in an empty folder. If it has the option
    `base_url`, a local server replaces the remote service. Tools are called with invalid inputs; tools marked
    `side_effect_free`, and tools that have an --input, are also called with valid inputs.

    Exit codes: 0 passed (possibly with warnings), 1 failed, 2 cannot be checked.
    """
    environment = Environment.take_from_environ()
    options = _options("--config", config) or {}
    given = _options("--input", tool_input)
    try:
        report = validated(path, module_type, options, time_limit_s, given)
    except ModuleNotFoundError as e:
        raise NotUsable(str(e)) from e
    hidden = (*secrets(environment), *secret_options(options), *secret_options(given))
    click.echo(hide_secrets(rendered(report, lambda outcome, text: click.style(text, fg=_COLOURS[outcome])), hidden))
    click.get_current_context().exit(_FAILED if not report.passed else 0 if report.complete else NotUsable.exit_code)


@module.command()
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def new(name: str, folder: Path | None) -> None:
    """Write the project of a new tool module to FOLDER (default: NAME): the tool, its test, and an agent that uses it.

    NAME begins with `tool-`, such as tool-dice. The documentation page on modules describes the other kinds.
    """
    folder = folder or Path(name)
    if not _NAME.fullmatch(name):
        raise NotUsable(
            f"{name!r} is not the name of a tool module. Choose one such as tool-dice: `tool-`, then lower-case words "
            "of letters and digits, joined by `-`."
        )
    if name in entry_points(group="amplifier.modules").names:
        raise NotUsable(f"A module {name} is installed already. Choose another name.")
    if folder.exists():
        raise NotUsable(f"{folder} exists already. Choose another name, or add a folder: module new {name} FOLDER.")
    package = package_of(name)
    values = {"name": name, "package": package, "tool": name.removeprefix("tool-").replace("-", "_"), "folder": folder}
    paths = ("pyproject.toml", "agent.yaml", f"{package}/__init__.py", f"tests/test_{name.replace('-', '_')}.py")
    try:
        for path in (folder / each for each in paths):
            template = "test.py" if path.parent.name == "tests" else path.name
            text = (_NEW_TOOL / f"{template}.txt").read_text(encoding="utf-8")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(values), encoding="utf-8")
            click.echo(f"Wrote {path}.", err=True)
    except OSError as e:
        raise NotUsable(f"{e.filename} cannot be written: {e.strerror}. Choose another folder.") from e
    click.echo(
        f"Edit {folder / package}/__init__.py, then:\n"
        f"  amplifier-slack module validate {shlex.quote(str(folder))}\n"
        f"  amplifier-slack play --config {folder}/agent.yaml"
    )


def _options(option: str, given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        options = yaml.safe_load(_text(option, given))
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        problem = getattr(e, "problem", None) or type(e).__name__
        raise NotUsable(f"{option} is not valid YAML: {problem}. Correct it, or check the path.") from e
    if nesting(options, MAX_NESTING) > MAX_NESTING:  # an alias can contain itself
        raise NotUsable(f"{option} is nested more than {MAX_NESTING} levels deep, or contains itself. Flatten it.")
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise NotUsable(
            f"{option} must be a mapping. Give the path of a YAML file with lines such as `key: value`, or inline "
            "YAML such as `{key: value}`."
        )
    return options


def _text(option: str, given: str) -> str:
    """Return the content of the file with this name, or the text itself if there is no such file."""
    try:
        path = Path(given).expanduser()
        return path.read_text(encoding="utf-8") if path.is_file() else given
    except UnicodeDecodeError as e:
        raise NotUsable(f"{option}: {given} is not a text file. Give the path of a YAML file.") from e
    except (OSError, RuntimeError, ValueError):  # not a valid path
        return given
