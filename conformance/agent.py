"""The agent under test: its description in YAML, and its process."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from local_slack import EVENTS

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Mapping
    from pathlib import Path

Stop = Literal["reaction", "word", "button"]


def _known(event: str) -> str:
    if event not in EVENTS:
        raise ValueError(f"must be one of {', '.join(EVENTS)}")
    return event


Event = Annotated[str, AfterValidator(_known)]


class DescriptionError(Exception):
    """A description cannot be used; the text names the mistake."""


class Agent(BaseModel):
    """How to run an agent and to talk to it.

    In ``command`` and ``env``, ``{folder}`` is a folder of its own that outlives a kill, ``{model}`` the address of the
    model, and ``{here}`` the folder of the description.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    version: str = ""
    command: str = Field(min_length=1, description="A shell command; it gets SLACK_API_URL and the tokens.")
    env: dict[str, str] = {}
    mention: Literal["first", "every"] = Field("first", description="Which messages of a thread must mention the bot.")
    model: bool = Field(default=True, description="Whether it calls the model; if not, each reply counts as an answer.")
    events: tuple[Event, ...] = Field((), description="The app's event subscriptions; all if there are none.")
    stop: tuple[Stop, ...] = Field(
        (), description="How a person stops it: ❌ on the first message, the word stop, Slack's button."
    )
    ready_s: float = Field(30, gt=0, description="The longest time until it is connected.")
    patience_s: float = Field(20, gt=0, description="The longest wait for an answer; a later one counts as lost.")


def read_agent(path: Path) -> Agent:
    """Read a description.

    Raises:
        DescriptionError: it cannot be read, or a key is wrong; its text names the file and the key.
    """
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Agent.model_validate(given)
    except ValidationError as e:
        problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in e.errors())
        raise DescriptionError(f"{path} is no description of an agent: {problems}. See docs/conformance.md.") from e
    except (OSError, ValueError, yaml.YAMLError) as e:
        raise DescriptionError(f"{path} cannot be read: {e}") from e


class AgentProcess:
    """The process of an agent, in a group of its own; it can be killed and started again."""

    def __init__(self, agent: Agent, here: Path, folder: Path, model_url: str, variables: Mapping[str, str]) -> None:
        self._places = {"{folder}": str(folder), "{model}": model_url, "{here}": str(here)}
        self._command = self._filled(agent.command)
        env = {name: self._filled(value) for name, value in agent.env.items()}
        self._env = {**os.environ, **variables, **env}
        self._folder, self._log = folder, folder / "agent.log"
        self._process: Process | None = None

    @property
    def last_words(self) -> str:
        """Return the last line of its output, which is in ``agent.log`` of its folder."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await self._started(log)

    async def kill(self) -> None:
        """Kill its process group at once (SIGKILL)."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    async def _started(self, log: IO[bytes]) -> Process:
        return await asyncio.create_subprocess_shell(
            self._command,
            cwd=self._folder,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def _filled(self, text: str) -> str:
        for name, value in self._places.items():
            text = text.replace(name, value)
        return text
