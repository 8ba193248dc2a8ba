"""The commands `amplifier-slack module …`, for writers of modules."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.outside_json import MAX_NESTING, nesting
from orchestrator_interactive.validation import MODULE_TYPES, TIME_LIMIT_S, rendered
from orchestrator_interactive.validation import validate as validated
from service.config.config import Environment
from service.config.secrets import secret_options, secrets
from service.logging import hide_secrets

if TYPE_CHECKING:
    from orchestrator_interactive.validation import ModuleType, Outcome

_COLOURS: dict[Outcome, str] = {"passed": "green", "failed": "red", "warning": "yellow", "not checked": "cyan"}
_FAILED, _UNUSABLE = 1, 2


@click.group()
def module() -> None:
    """Help to write modules."""


@module.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--type", "module_type", type=click.Choice(MODULE_TYPES), help="What it is; found out otherwise.")
@click.option("--config", metavar="YAML", help="The module's configuration: a YAML file, or YAML itself.")
@click.option(
    "--input",
    "tool_input",
    metavar="YAML",
    help="An input to call its tool with, even if that may have side effects; of several tools, by the name of each.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=TIME_LIMIT_S,
    show_default=True,
    help="How long one check may take.",
)
def validate(
    path: Path,
    module_type: ModuleType | None,
    config: str | None,
    tool_input: str | None,
    time_limit_s: float,
) -> None:
    """Check a module against the contract of its type, in its structure and in its behaviour.

    PATH is a project, a package, or a Python file. The module is run in an empty folder and, where it asks a service at
    the option `base_url`, with a server of this machine in its place. Tools are called with inputs that make no sense;
    those that say `side_effect_free`, or that --input is for, also with inputs that do.

    The exit code is 0 where it passes (there may be warnings), 1 where it fails, 2 where it cannot be looked at.
    """
    environment = Environment.take()
    options = _options("--config", config) or {}
    given = _options("--input", tool_input)
    try:
        report = validated(path, module_type, options, time_limit_s, given)
    except ModuleNotFoundError as e:
        raise _Unusable(str(e)) from e
    hidden = (*secrets(environment), *secret_options(options), *secret_options(given))
    click.echo(hide_secrets(rendered(report, _painted), hidden))
    click.get_current_context().exit(_FAILED if not report.passed else 0 if report.complete else _UNUSABLE)


class _Unusable(click.ClickException):
    exit_code = _UNUSABLE


def _painted(outcome: Outcome, text: str) -> str:
    return click.style(text, fg=_COLOURS[outcome])


def _options(option: str, given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        options = yaml.safe_load(_text(option, given))
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        said = getattr(e, "problem", None) or type(e).__name__
        raise _Unusable(f"{option} cannot be read as YAML: {said}. Correct it, or check the path.") from e
    if nesting(options, MAX_NESTING) > MAX_NESTING:  # an alias can contain itself
        raise _Unusable(f"{option} is nested more than {MAX_NESTING} levels deep, or contains itself. Flatten it.")
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise _Unusable(
            f"{option} is neither a file with options nor options themselves. Give the path of a YAML file that has "
            "lines such as `key: value`, or YAML such as `{key: value}`."
        )
    return options


def _text(option: str, given: str) -> str:
    """The content of the file of this name; where there is none, the text itself."""
    try:
        path = Path(given).expanduser()
        return path.read_text(encoding="utf-8") if path.is_file() else given
    except UnicodeDecodeError as e:
        raise _Unusable(f"{option}: {given} is no text file. Give the path of a YAML file.") from e
    except (OSError, RuntimeError, ValueError):  # no file can be called so
        return given
