"""The command `amplifier-slack`."""

from __future__ import annotations

import gc
import signal
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator


class _OnDemand(click.Group):
    """Import a command only when it is called, to keep the start of the service fast."""

    # Each command with its line in the group's help; its module, if that has another name, is in `_MODULES`.
    _COMMANDS: ClassVar = {
        "approvals": "Check and list what needs the approval of people.",
        "backup": "Copy the store to a file while the service runs.",
        "completion": "Print the completion script of a shell.",
        "config": "Print the schema of the configuration file; check a file.",
        "conversations": "Inspect, branch, rewind and prune conversation logs.",
        "doctor": "Check the configuration, Slack, the store and the agents.",
        "feedback": "Show how people rated the answers of agents.",
        "init": "Write a commented configuration file.",
        "manifest": "Print the manifest of the required Slack app.",
        "module": "Tools for module authors.",
        "people": "Export or erase what one person wrote.",
        "play": "Try an agent in a small Slack on this machine.",
        "recipe": "Check and list recipes.",
        "reload": "Let running services take over a changed configuration file.",
        "restore": "Replace the store by a backup.",
        "run": "Serve Slack until Ctrl-C.",
        "schedules": "List and remove the schedules of people.",
        "sessions": "Run the agents of a service in a process of their own.",
        "top": "Show the active runs of all replicas, and stop one.",
        "workers": "List, show and stop workers.",
        "workspaces": "List and remove installations of the app.",
    }
    _MODULES: ClassVar = {
        "backup": "store",
        "people": "store",
        "completion": "main",
        "init": "config",
        "restore": "store",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click has it
        return list(self._COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click has it
        if cmd_name not in self._COMMANDS:
            return None
        with _loading():
            module = import_module(f"service.cli.{self._MODULES.get(cmd_name, cmd_name)}")
            command: click.Command = getattr(module, cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with the exit code of a shell, 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(128 + signal.SIGINT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as click has it
        with formatter.section("Commands"):
            formatter.write_dl(list(self._COMMANDS.items()))


@contextmanager
def _loading() -> Iterator[None]:
    """Disable garbage collection during imports, then freeze the imported objects; saves a fifth of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@click.group(cls=_OnDemand, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="amplifier-slack", prog_name="amplifier-slack")
def main() -> None:
    """Put AI agents that you can steer into Slack threads."""


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    r"""Print the completion script of SHELL.

    \b
    bash: eval "$(amplifier-slack completion bash)" in ~/.bashrc
    zsh:  eval "$(amplifier-slack completion zsh)" in ~/.zshrc
    fish: amplifier-slack completion fish > ~/.config/fish/completions/amplifier-slack.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only this command needs it

    made = get_completion_class(shell)
    if made is not None:
        click.echo(made(main, {}, "amplifier-slack", "_AMPLIFIER_SLACK_COMPLETE").source())
