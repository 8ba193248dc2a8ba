"""Where the app is installed: its tokens, the codes of Slack's OAuth, and what ends an installation."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.workspace import holder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from local_slack.json_limits import Json
    from local_slack.workspace.people import Holder, Organisation
    from local_slack.workspace.workspace import Workspace

_CODE_S = 600.0
# As in Slack, so many tokens of a rotation are valid at the same time.
_VALID_TOKENS = 2
_UNINSTALLED = "account_inactive"


@dataclass(frozen=True, slots=True)
class Client:
    """The credentials of an app that people install."""

    id: str
    secret: str


@dataclass(slots=True)
class _Installation:
    """The latest ``tokens`` with their ends, in seconds since the epoch; without rotation ``refresh`` is blank."""

    tokens: dict[str, float] = field(default_factory=dict)
    refresh: str = ""


@dataclass(frozen=True, slots=True)
class _Code:
    place: str
    person: str
    redirect_uri: str
    until_s: float
    is_for_bot: bool


class Installations:
    """The installations of the app: each in a team, or one in the ``organisation`` of all teams.

    Without a ``client`` the app is installed in every team, and stays. Otherwise it is in those of ``installed``, given
    by name. With ``rotation_s`` a token is valid for so long, and is renewed with a refresh token. A place is the id of
    a team or of the organisation.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the settings of LocalSlack
        self,
        workspaces: Sequence[Workspace],
        client: Client | None,
        installed: Collection[str] | None,
        organisation: Organisation | None,
        rotation_s: float | None,
        clock: Callable[[], float],
    ) -> None:
        self.client = client
        self.organisation = organisation
        # Sends an event of the app's life to it: the team, the event, and the authorization that it is for.
        self.tell: Callable[[str, Json, Json], None] = lambda *_: None
        self._workspaces = {each.directory.team.id: each for each in workspaces}
        self._rotation_s, self._clock = rotation_s, clock
        self._installed: dict[str, _Installation] = {}
        # The teams in which the installation of the organisation may be used.
        self._granted: set[str] = set()
        self._codes: dict[str, _Code] = {}
        self._used: set[str] = set()
        # Slack's error for tokens that are no longer valid.
        self._ended: dict[str, str] = {}
        names = [each.directory.team.name for each in workspaces]
        if unknown := set(installed or ()).difference(names):
            raise ValueError(f"no workspace is called {min(unknown)!r}; there are {', '.join(names)}")
        if client is None and (installed or organisation or rotation_s):
            raise ValueError("without the credentials of a client, the app cannot be installed")
        for workspace in workspaces:
            team = workspace.directory.team
            if client is None or installed is None or team.name in installed:
                self.install(team.id)

    # Tokens

    def find(self, token: str, values: Mapping[str, Any]) -> tuple[Workspace, Holder] | None:
        """Return the workspace in which a call acts, and the holder of its token; None for an unknown token."""
        if (found := holder_of(token, self._workspaces.values())) is not None:
            return found
        place = self._place_of(token)
        if place is None:
            return None
        workspace = self._workspaces.get(place) or self._named(values)
        return workspace, workspace.directory.bot

    def problem(self, token: str) -> str | None:
        """Return Slack's error code for a token of the app that is not valid."""
        if error := self._ended.get(token):
            return error
        if (place := self._place_of(token)) is not None:
            return "token_expired" if self._installed[place].tokens[token] <= self._clock() else None
        is_of_app = any(token == each.directory.bot.token for each in self._workspaces.values())
        return "invalid_auth" if is_of_app else None

    def is_of_organisation(self, token: str) -> bool:
        return self.organisation is not None and self._place_of(token) == self.organisation.id

    def authorization(self, team_id: str) -> Json | None:
        """Return for whom the app gets the events of a team; None: for no one."""
        if team_id in self._installed:
            return self._authorization(team_id, is_of_organisation=False)
        is_granted = team_id in self._granted and self.organisation and self.organisation.id in self._installed
        return self._authorization(team_id, is_of_organisation=True) if is_granted else None

    @property
    def granted(self) -> list[Json]:
        """The teams in which the installation of the organisation may be used."""
        teams = (each.directory.team for each in self._workspaces.values())
        return [{"id": team.id, "name": team.name} for team in teams if team.id in self._granted]

    # Slack's OAuth

    def authorize(self, place: str, person: str, redirect_uri: str, *, is_for_bot: bool) -> str:
        """Return a code by which the app gets the token of a place, or only one of the person."""
        code = secrets.token_hex(16)
        self._codes[code] = _Code(place, person, redirect_uri, self._clock() + _CODE_S, is_for_bot)
        return code

    def exchange(self, code: str, redirect_uri: str | None) -> tuple[str, str, bool]:
        """Install the app for a code; return the place, the person, and whether the bot gets a token.

        Without a token for the bot, nothing is installed.
        """
        found = self._codes.pop(code, None)
        if found is None:
            raise SlackRefused("code_already_used" if code in self._used else "invalid_code")
        self._used.add(code)
        if found.until_s <= self._clock():
            raise SlackRefused("invalid_code")
        if redirect_uri != found.redirect_uri:
            raise SlackRefused("bad_redirect_uri")
        if found.is_for_bot:
            self.install(found.place)
        return found.place, found.person, found.is_for_bot

    def install(self, place: str) -> None:
        """Install the app, or give out a further token of its installation."""
        if self.organisation is not None and place == self.organisation.id and place not in self._installed:
            self._granted = set(self._workspaces)
        self._give_token(place, self._installed.setdefault(place, _Installation()))

    def refresh(self, refresh_token: str) -> str:
        """Give out a new token for a refresh token, which is used up; return the place."""
        for place, installation in self._installed.items():
            if refresh_token and installation.refresh == refresh_token:
                self._give_token(place, installation)
                return place
        raise SlackRefused("invalid_refresh_token")

    def given(self, place: str, *, is_for_bot: bool) -> Json:
        """Return a place with the latest token of the bot there, as ``oauth.v2.access`` does."""
        workspace = self._workspaces.get(place)
        answer: Json = {
            "team": workspace and {"id": place, "name": workspace.directory.team.name},
            "enterprise": self.organisation and {"id": self.organisation.id, "name": self.organisation.name},
            "is_enterprise_install": workspace is None,
        }
        if not is_for_bot:
            return answer
        installation = self._installed[place]
        bot_user_id = (workspace or self._first).directory.bot.id
        answer |= {"access_token": list(installation.tokens)[-1], "token_type": "bot", "bot_user_id": bot_user_id}
        if installation.refresh:
            answer |= {"refresh_token": installation.refresh, "expires_in": int(self._rotation_s or 0)}
        return answer

    def end(self, token: str) -> None:
        """Uninstall the app from the place of a token."""
        if (place := self._place_of(token)) is None:
            raise SlackRefused(self.problem(token) or "invalid_auth")
        self.uninstall(place)

    def uninstall(self, place: str) -> None:
        """Uninstall the app from a place. It gets ``app_uninstalled`` and ``tokens_revoked``."""
        installation = self._installed.pop(place)
        self._ended |= dict.fromkeys(installation.tokens, _UNINSTALLED)
        workspace = self._workspaces.get(place)
        team = (workspace or self._first).directory.team.id
        to = self._authorization(team, is_of_organisation=workspace is None)
        bot = (workspace or self._first).directory.bot.id
        self.tell(team, {"type": "app_uninstalled"}, to)
        self.tell(team, {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [bot]}}, to)

    def grant(self, team_id: str, *, is_granted: bool) -> None:
        """Let the installation of the organisation be used in a team, or no longer."""
        (self._granted.add if is_granted else self._granted.discard)(team_id)
        kind = "team_access_granted" if is_granted else "team_access_revoked"
        to = self._authorization(team_id, is_of_organisation=True)
        self.tell(team_id, {"type": kind, "team_ids": [team_id]}, to)

    def _give_token(self, place: str, installation: _Installation) -> None:
        workspace = self._workspaces.get(place)
        token = f"xoxb-{place}-{secrets.token_hex(8)}" if workspace is None else workspace.directory.bot.token
        if self._rotation_s is None:
            if workspace is not None or not installation.tokens:
                installation.tokens = {token: math.inf}
            self._ended.pop(token, None)
            return
        latest = dict(list(installation.tokens.items())[1 - _VALID_TOKENS :])
        self._ended |= dict.fromkeys(installation.tokens.keys() - latest.keys(), "token_revoked")
        token = f"xoxe.xoxb-1-{place}-{secrets.token_hex(8)}"
        installation.tokens = {**latest, token: self._clock() + self._rotation_s}
        installation.refresh = f"xoxe-1-{secrets.token_hex(16)}"

    def _authorization(self, team_id: str, *, is_of_organisation: bool) -> Json:
        return {
            "enterprise_id": self.organisation and self.organisation.id,
            "team_id": team_id,
            "user_id": self._workspaces[team_id].directory.bot.id,
            "is_bot": True,
            "is_enterprise_install": is_of_organisation,
        }

    def _place_of(self, token: str) -> str | None:
        return next((place for place, each in self._installed.items() if token in each.tokens), None)

    def _named(self, values: Mapping[str, Any]) -> Workspace:
        """Return the workspace that a call with the organisation's token names by its team, channel or user."""
        if (named := self._workspaces.get(str(values.get("team_id")))) is not None:
            return named
        ids = {str(values[name]) for name in ("channel", "channel_id", "user", "user_id", "users") if name in values}
        for workspace in self._workspaces.values():
            if ids & workspace.directory.members.keys() or any(each.id in ids for each in workspace.channels):
                return workspace
        return self._first

    @property
    def _first(self) -> Workspace:
        return next(iter(self._workspaces.values()))
