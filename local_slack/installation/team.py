"""One workspace in which the app is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_slack.installation.person_client import PersonClient
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace


class InstalledTeam:
    """Names and tokens of the app in ``workspace``; ``client`` makes the clients of people."""

    def __init__(self, workspace: Workspace, client: Callable[[Person, Workspace], PersonClient]) -> None:
        self.workspace = workspace
        self._client = client

    @property
    def name(self) -> str:
        return self.workspace.directory.team.name

    @property
    def team_id(self) -> str:
        return self.workspace.directory.team.id

    @property
    def bot_token(self) -> str:
        return self.workspace.directory.bot.token

    @property
    def bot_user_id(self) -> str:
        return self.workspace.directory.bot.id

    def person(self, name: str) -> Person:
        return self.workspace.directory.person(name)

    def channel(self, name: str) -> Channel:
        return self.workspace.channel(name)

    def as_person(self, name: str) -> PersonClient:
        """Return a client that acts as this person over HTTP."""
        return self._client(self.person(name), self.workspace)
