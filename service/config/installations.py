"""The section `installations`: one service for many workspaces, in which people install the app in their browsers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from service.config.section import Section
from service.config.slack import AllowedChannels, AllowedUsers, BotId, SlackConfig, WorkspaceId, checked_id

# Paths of the pages of an installation.
INSTALL, RETURN = "/slack/install", "/slack/oauth_redirect"

_AnyId = Annotated[
    str,
    checked_id(
        r"[TE][A-Z0-9]{2,}",
        "id of a workspace or an organisation, such as T012AB3CD or E012AB3CD",
        "in the address app.slack.com/client/T… or E…",
    ),
]


class WorkspaceRules(Section):
    """Settings of one workspace, which replace the ones in `slack`.

    Args:
        instances: names of the agents there; the first one is the default. Default: all.
        users: ids of the users that have access.
        channels: ids of the channels in which the bot answers.
        external: whether users of other workspaces have access in shared channels.
        guests: whether guests of the workspace have access.
        bots: ids of other bots that are answered.
        bot_exchanges: most messages of bots that are answered in a thread before a person writes to the agent.
    """

    instances: tuple[str, ...] = ()
    users: AllowedUsers = None
    channels: AllowedChannels = None
    external: bool = False
    guests: Literal["allow", "deny"] = "allow"
    bots: frozenset[BotId] = frozenset()
    bot_exchanges: int = Field(default=3, ge=1, le=100)

    def over(self, slack: SlackConfig) -> SlackConfig:
        """Return the settings of Slack with those that are given here."""
        given = {name: getattr(self, name) for name in self.model_fields_set - {"instances"}}
        return slack.model_copy(update=given)


class InstallationsConfig(Section):
    """Many workspaces, in which people install the app.

    Args:
        allow: ids of the workspaces and organisations that may install the app, or `any`. Default: no one; the service
            serves the workspace of SLACK_BOT_TOKEN.
        settings: settings of workspaces by their ids.
    """

    allow: Literal["any"] | frozenset[_AnyId] | None = Field(default=None)
    settings: dict[WorkspaceId, WorkspaceRules] = Field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        return self.allow is not None

    def may_install(self, *ids: str) -> bool:
        """Return whether the app may be installed in a place with one of the ids: a workspace, or its organisation."""
        return self.allow is not None and (self.allow == "any" or not self.allow.isdisjoint(ids))
