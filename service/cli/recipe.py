"""The commands `amplifier-slack recipe …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from service.cli.setup import NotUsable, Setup, config_option
from service.config.config import Environment

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def recipe() -> None:
    """Check and list the recipes that agents and people can run."""


@recipe.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=click.Path(path_type=str))
def validate(files: tuple[str, ...]) -> None:
    """Check the recipe in each FILE: its steps, and all that they refer to. Nothing is run.

    Exit codes: 0 all are valid, 2 one is not.
    """
    from pathlib import Path  # noqa: PLC0415 - with the recipes, which need jinja2

    from orchestrator_interactive.recipes.library import read_file  # noqa: PLC0415

    for file in files:
        try:
            read = read_file(Path(file))
        except ValueError as e:
            raise NotUsable(str(e)) from e
        click.echo(f"{file}: the recipe {read.name} is valid: {len(read.steps)} steps.")


@recipe.command("list")
@config_option
def list_(config_path: Path | None) -> None:
    """List the recipes of each agent, with their inputs."""
    from orchestrator_interactive.config import validate as validated  # noqa: PLC0415 - see above
    from orchestrator_interactive.recipes.inputs import usage  # noqa: PLC0415
    from orchestrator_interactive.recipes.library import MODULE, RecipesOptions, recipes_of  # noqa: PLC0415

    setup = Setup(Environment.from_environ())
    with setup.errors():
        config = setup.load(config_path)
    if not any(tool.module == MODULE for instance in config.instances.values() for tool in instance.tools):
        click.echo(f"No instance has the module {MODULE}.", err=True)
    for name, instance in config.instances.items():
        for tool in instance.tools:
            if tool.module == MODULE:
                try:
                    found = recipes_of(validated(RecipesOptions, tool.config, MODULE))
                except ValueError as e:
                    raise NotUsable(f"{name}: {e}") from e
                click.echo(f"{name}:")
                for each in found.values():
                    click.echo(f"  {usage(each.name, each.inputs)}\n      {each.description.strip()}")
