"""The command `amplifier-slack`."""

from __future__ import annotations

import gc
from importlib import import_module
from importlib.metadata import version
from typing import ClassVar

import click


class _OnDemand(click.Group):
    """Loads a command when it is asked for: who starts the service waits for nothing that only others need."""

    _COMMANDS: ClassVar = {
        "conversations": "service.conversations_command",
        "doctor": "service.doctor_command",
        "manifest": "service.manifest_command",
        "module": "service.module_command",
        "run": "service.run_command",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return list(self._COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click has it
        if cmd_name not in self._COMMANDS:
            return None
        gc.disable()  # to load is to make what stays: looking at it again and again takes a fifth of the time
        try:
            command: click.Command = getattr(import_module(self._COMMANDS[cmd_name]), cmd_name)
        finally:
            gc.enable()
        return command


@click.group(cls=_OnDemand)
@click.version_option(version("amplifier-slack"), prog_name="amplifier-slack")
def main() -> None:
    """Put AI agents that you can steer into Slack threads."""
