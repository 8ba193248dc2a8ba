"""A workspace in this process, and the service in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from service_process import Serving, serving_with_agents
from tool_gate import Reached

from local_slack import BlockUntil, LocalSlack, WorkspaceMessage


class Hold(asyncio.Event):
    """An event for `Waits` that reports when a call waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = Reached()

    async def wait(self) -> Literal[True]:
        self.reached.set()
        return await super().wait()


@dataclass(frozen=True)
class SlackEnvironment:
    """A workspace, and the environment variables with which the service uses it."""

    slack: LocalSlack
    env: Mapping[str, str]

    @classmethod
    def of(cls, slack: LocalSlack, home: Path) -> Self:
        tokens = {"SLACK_APP_TOKEN": slack.app_token, "SLACK_BOT_TOKEN": slack.bot_token}
        return cls(slack, {**tokens, "SLACK_API_URL": slack.api_url, "HOME": str(home)})

    def serving(self, *arguments: str, **more: str) -> AbstractAsyncContextManager[Serving]:
        return serving_with_agents({**self.env, **more}, *arguments)

    def hold(self, method: str) -> Hold:
        """Hold the next call of this method until the event is set."""
        hold = Hold()
        self.slack.faults.next(method, BlockUntil(hold))
        return hold

    def said(self, root: str) -> list[str]:
        """Return the current texts of the bot in a thread of #general."""
        return [m.text for m in self._thread(root) if m.by_bot]

    def found(self, root: str, text: str) -> WorkspaceMessage | None:
        return next((m for m in self._thread(root) if m.ts != root and text in m.text), None)

    def _thread(self, root: str) -> tuple[WorkspaceMessage, ...]:
        return self.slack.workspace.thread(self.slack.channel("general").id, root)
