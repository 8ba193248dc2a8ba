"""A text is a command, almost one, or a message to the agent."""

from __future__ import annotations

import pytest

from connector.commands import InvalidCommand, ThreadCommand, command_of, help_text


@pytest.mark.parametrize(
    ("prompt", "command"),
    [
        ("!status", ThreadCommand("status")),
        ("!STATUS ", ThreadCommand("status")),
        ("!rewind", ThreadCommand("rewind")),
        ("!rewind 3", ThreadCommand("rewind", "3")),
        ("!checkout left-1a2b3c", ThreadCommand("checkout", "left-1a2b3c")),
        ("!recipe", ThreadCommand("recipe")),
        ('!recipe  run x a="b  c"', ThreadCommand("recipe", 'run x a="b  c"')),
        ("!instance @Beta", ThreadCommand("instance", "Beta")),
    ],
)
def test_a_verb_with_its_arguments_is_a_command(prompt, command):
    assert command_of(prompt) == command


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "!",
        "status",
        "!wait",
        "!wait, use the other file",
        "!stop",
        "!STOP!",
        "!halt",
        "rewind 2",
        "!no",
        "use !status",
    ],
)
def test_other_text_is_a_message_or_a_stop_word(prompt):
    assert command_of(prompt) is None


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("!statsu", "Did you mean `!status`?"),
        ("!status?", "Did you mean `!status`?"),
        ("!chekout main", "Did you mean `!checkout NAME`?"),
        ("!rewnd", "Did you mean `!rewind [N]`?"),
        ("!rewind all", "Usage: `!rewind [N]`"),
        ("!rewind 0", "Usage: `!rewind [N]`"),
        ("!checkout", "Usage: `!checkout NAME`"),
        ("!stop the tests", "Usage: `!stop [NAME]`"),
    ],
)
def test_a_word_that_is_almost_a_command_is_answered_with_its_form(prompt, answer):
    found = command_of(prompt)
    assert isinstance(found, InvalidCommand)
    assert answer in found.answer


def test_the_help_has_every_command():
    assert all(f"`!{verb}" in help_text() for verb in ("fork", "checkout NAME", "rewind [N]", "instance NAME", "cost"))
