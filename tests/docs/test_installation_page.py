from __future__ import annotations

import re

import click

from service.cli.main import main


def test_its_commands_and_the_options_of_play_exist(page):
    context = click.Context(main)
    called = re.findall(r"^amplifier-slack (\w+)(?: (\w+))?", "\n".join(page.blocks("sh")), re.MULTILINE)
    assert len(called) == 9
    for name, subcommand in called:
        command = main.get_command(context, name)
        assert not isinstance(command, click.Group) or command.get_command(context, subcommand), (name, subcommand)
    options = re.findall(r"^\| `(--[a-z]+)", page.text, re.MULTILINE)
    assert options == [each.opts[0] for each in main.get_command(context, "play").params]


def test_its_links_lead_to_files(page):
    assert [target for target in page.links() if not target.exists()] == []
