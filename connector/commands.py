"""The commands that people write in a thread (`!status`) or as a slash command (`/agent status`), in one table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from connector.events import is_stop_word

Effect = Literal["private", "thread", "log", "stop"]
# The least likeness of a word to a command: alone, and with arguments, since other words may follow it by chance.
_ALIKE_ALONE, _ALIKE = 0.7, 0.85


@dataclass(frozen=True, slots=True)
class Verb:
    """A command.

    Args:
        arguments: its grammar: `NAME` and `ID` are one word, `[N]` an optional number, `stop` this word; blank: none;
            with `TEXT`: anything.
        help: one sentence.
        effect: `private`: it is answered to its author only; `thread`: it changes who answers in the thread; `log`: the
            owner of the conversation carries it out on the log; `stop`: it stops a worker or sub-agents.
        is_steering: whether it needs the right to steer, since it changes the history that the agent reads.
        begins: whether it may begin a thread with an agent.
    """

    name: str
    arguments: str
    help: str
    effect: Effect = "private"
    is_steering: bool = False
    begins: bool = False

    @property
    def usage(self) -> str:
        return f"!{self.name} {self.arguments}".strip()

    @property
    def takes_text(self) -> bool:
        return "TEXT" in self.arguments

    def accepts(self, arguments: list[str]) -> bool:
        if self.takes_text:
            return True
        match self.arguments, arguments:
            case ("", []) | ("[N]" | "[NAME]", []) | ("NAME" | "[NAME]", [_]) | ("stop ID", ["stop", _]):
                return True
            case "[N]", [number]:
                return re.fullmatch(r"[1-9][0-9]{0,3}", number) is not None
        return False


# The word that undoes `!model NAME`.
DEFAULT_MODEL = "default"
RECIPE_HELP = "runs a recipe with these inputs, shows or cancels those that run, or lists all."
STOP_HELP = "stops the run, or only the sub-agent or worker NAME; a second one stops it at once."
SCHEDULE_HELP = "lists the schedules; or sends TEXT to the agent at a time (`in 2 weeks`, `0 9 * * 1`); or removes one."
MEMORY_HELP = "lists the facts kept for this channel; or adds, changes or forgets one; or posts all as a file."
VERBS = {
    verb.name: verb
    for verb in (
        Verb("help", "", "lists the commands."),
        Verb("status", "", "shows the active run of this thread, and the number of pending messages."),
        Verb("stop", "[NAME]", STOP_HELP, "stop"),
        Verb("workers", "", "lists the workers of this thread."),
        Verb("worker", "stop ID", "stops a worker, or with `all` every worker of this thread.", "stop"),
        Verb("recipe", "run NAME INPUT=TEXT | status [ID] | cancel ID | list", RECIPE_HELP, "log", True, True),
        Verb("cost", "", "shows the tokens and the cost of this conversation."),
        Verb("approvals", "", "lists the pending approvals."),
        Verb("new", "", "lets the agent begin anew in this thread; the earlier branch is kept.", "log", True),
        Verb("rewind", "[N]", "rewinds by the last exchange, or the last N; they are kept on a branch.", "log", True),
        Verb("branches", "", "lists the branches of this conversation.", "log"),
        Verb("checkout", "NAME", "continues on another branch.", "log", True),
        Verb("fork", "", "continues the conversation in a new thread, too.", "log", True),
        Verb("export", "", "posts the conversation as a file.", "log"),
        Verb("schedule", "[WHEN TEXT | remove ID]", SCHEDULE_HELP, "log", True, True),
        Verb("memory", "[add TEXT | edit ID TEXT | forget ID | export]", MEMORY_HELP, "log", begins=True),
        Verb("mute", "", "lets the agent answer only mentions here.", "thread"),
        Verb("unmute", "", "ends that.", "thread"),
        Verb("instance", "NAME", "lets another agent answer here.", "thread"),
        Verb("model", "[NAME]", "lets another model answer here from the next run on, or lists them.", "thread"),
    )
}


@dataclass(frozen=True, slots=True)
class ThreadCommand:
    """A message that is a command for its thread: its verb and its argument, if any."""

    kind: str
    argument: str = ""


@dataclass(frozen=True, slots=True)
class InvalidCommand:
    """A message that is almost a command; `answer` tells its author how to write it."""

    answer: str


def command_of(prompt: str) -> ThreadCommand | InvalidCommand | None:
    """Parse a command; `None`: the prompt is none. Other words after a `!` are an urgent message to the agent."""
    words = prompt.split()
    if not words or not words[0].startswith("!") or is_stop_word(prompt):
        return None
    name, arguments = words[0][1:].lower(), words[1:]
    verb = VERBS.get(name)
    if verb is None:
        alike = get_close_matches(name, VERBS, 1, _ALIKE_ALONE if not arguments else _ALIKE)
        alike = [each for each in alike if not arguments or VERBS[each].accepts(arguments)]
        return InvalidCommand(f"I know no `!{name}`. Did you mean `{VERBS[alike[0]].usage}`?") if alike else None
    if not verb.accepts(arguments):
        return InvalidCommand(f"Usage: `{verb.usage}`: it {verb.help}")
    if verb.takes_text:
        return ThreadCommand(verb.name, prompt.strip()[len(words[0]) :].strip())
    return ThreadCommand(verb.name, arguments[-1].strip("@:,") if arguments else "")


def help_text() -> str:
    """Return the table of the commands in Slack's markup."""
    rows = "\n".join(f"• `{verb.usage}` {verb.help}" for verb in VERBS.values())
    return f"Commands in a thread with an agent:\n{rows}\nAny other text after a `!` reaches the agent at once."


def slash_help(name: str) -> str:
    """Return the help of a slash command of this name, in Slack's markup."""
    rows = (
        ("status", "shows the active runs of this channel."),
        ("new TEXT", "begins a thread with your message to the agent."),
        ("stop", "stops the only run in this channel."),
        ("cost", "shows the tokens and the cost of the conversations that run here."),
        ("approvals", VERBS["approvals"].help),
        (VERBS["schedule"].usage.removeprefix("!"), f"{SCHEDULE_HELP[:-1]}, each in a new thread."),
    )
    return "\n".join(f"• `{name} {usage}` {text}" for usage, text in rows) + "\nIn a thread, write `!help`."
