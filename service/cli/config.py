"""The commands `amplifier-slack config …` and `init`: schema and check of the configuration file, and a new one."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from pydantic import SecretStr
from pydantic_core import to_jsonable_python

from service.cli.setup import NotUsable, Setup
from service.config.config import Environment, LogConfig, ServiceConfig, store_of
from service.config.section import Section
from service.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE = Path("agents.yaml")
_HEAD = """\
# yaml-language-server: $schema={schema}
# The configuration of amplifier-slack. Lines that begin with "# " and a key show its default; "## ": it has none.
# Try it:    amplifier-slack play --config {name}
# Check it:  amplifier-slack config check {name}
# Serve it:  amplifier-slack run --config {name}    (tokens: SLACK_BOT_TOKEN, SLACK_APP_TOKEN, ANTHROPIC_API_KEY)

instances:
  alpha:                          # "@bot alpha: …" addresses it; the first instance is the default
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: |
      You are Alpha. People may write to you while you work: take it in and go on.
      Answer in Markdown, short and concrete.
    tools: [tool-filesystem, tool-todo, tool-share-file]
    # providers:
    #   - module: provider-anthropic
    #     config: {{api_key: "${{ANTHROPIC_API_KEY}}"}}
    # orchestrator: {{module: loop-interactive, config: {{max_cost_usd: 1}}}}
"""


@click.group()
def config() -> None:
    """Print the schema of the configuration file; check a file."""


@config.command()
def schema() -> None:
    """Print the JSON schema of the configuration file, for editors."""
    click.echo(_schema(), nl=False)


@config.command()
@click.argument("file", type=click.Path(path_type=Path), default=_FILE)
def check(file: Path) -> None:
    """Check FILE (default: agents.yaml) as `run` does, and report everything at once.

    Also mounts the modules. Slack's tokens are not checked: see `amplifier-slack doctor`.

    Exit codes: 0 no problems, 2 problems found.
    """
    from orchestrator_interactive.storage.errors import StoreError  # noqa: PLC0415 - as below
    from service.observe import problems_of  # noqa: PLC0415 - as below
    from service.sessions.preflight import preflight  # noqa: PLC0415 - the other commands start faster without it
    from service.store import check_url  # noqa: PLC0415 - as above
    from service.tables import counted  # noqa: PLC0415 - as above

    setup = Setup(Environment.take_from_environ())
    with setup.errors():
        loaded = setup.load(file)
        configure_logging(LogConfig(level="error"), setup.secrets)
        problems = problems_of(loaded.observe)
        try:
            check_url(store_of(loaded, setup.environment))
        except StoreError as e:
            problems.append(f"store: {e}")
        asyncio.run(preflight(loaded, setup.environment, problems, creates=False))
    count = counted(len(loaded.instances), "agent")
    click.echo(f"{file}: no problems found, {count} ({', '.join(loaded.instances)}).")


@click.command()
@click.argument("file", type=click.Path(path_type=Path), default=_FILE)
@click.option("--force", is_flag=True, help="Replace existing files.")
def init(file: Path, force: bool) -> None:
    """Write a commented configuration to FILE (default: agents.yaml), and its JSON schema beside it, for editors."""
    if not file.name:
        raise NotUsable(f"{file} is a folder. Name a file, such as {file / _FILE}.")
    beside, name = file.with_suffix(".schema.json"), shlex.quote(str(file))
    if not force and (present := [path for path in (file, beside) if path.exists() and not _is_schema(path)]):
        raise NotUsable(f"{present[0]} exists already. Name another file, or replace it with --force.")
    written = {
        file: _HEAD.format(schema=beside.name, name=name) + "".join(_commented(ServiceConfig.model_construct())),
        beside: _schema(),
    }
    try:
        for path, text in written.items():
            path.write_text(text, encoding="utf-8")
            click.echo(f"Wrote {path}.", err=True)
    except FileNotFoundError as e:
        raise NotUsable(f"There is no folder {file.parent}. Create it, or name another file.") from e
    except OSError as e:
        raise NotUsable(f"{e.filename} cannot be written: {e.strerror}. Name another file.") from e
    click.echo(f"Try it: amplifier-slack play --config {name}")


def _is_schema(path: Path) -> bool:
    """Return whether a file is a schema that `init` wrote, which a newer one may replace."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(found, dict) and found.get("title") == ServiceConfig.__name__
    return False


def _schema() -> str:
    made = {"$schema": "http://json-schema.org/draft-07/schema#", **_with_references(ServiceConfig.model_json_schema())}
    return f"{json.dumps(made, indent=2)}\n"


def _with_references(node: Any) -> Any:
    """Let a reference such as `${NAME}` stand for each value that is no text."""
    if isinstance(node, list):
        return [_with_references(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _with_references(each) for key, each in node.items()}
    if found.get("type") not in ("integer", "number", "boolean"):
        return found
    about = {key: found.pop(key) for key in ("title", "description", "default") if key in found}
    return {**about, "anyOf": [found, {"type": "string", "pattern": r"\$\{[^}]+\}"}]}


def _commented(section: Section, indent: str = "") -> Iterator[str]:
    """Yield the keys of a section with their defaults and descriptions, as comments."""
    descriptions = section.descriptions()
    for name in type(section).model_fields:
        value, about = getattr(section, name), descriptions.get(name, "")
        if name == "instances":
            continue
        if isinstance(value, Section):
            yield f"{'' if indent else chr(10)}# {indent}{name}: # {about}\n"
            yield from _commented(value, f"{indent}  ")
        else:
            mark = "##" if value is None else "#"
            yield f"{f'{mark} {indent}{name}: {_inline(value)}':<40} # {about}\n"


def _inline(value: Any) -> str:
    plain = value.get_secret_value() if isinstance(value, SecretStr) else to_jsonable_python(value)
    return (
        "" if plain is None else yaml.safe_dump(plain, default_flow_style=True, width=200).removesuffix("...\n").strip()
    )
