"""The members of a workspace: the team, its people, the bots of its apps, and their tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLORS = ("9f69e7", "4bbe2e", "e7392d", "3c989f", "674b1b", "e96699", "e0a729", "684b6c")
_UTC = "Etc/UTC"
# IANA names of time zones, by the names of people.
ZONES: Mapping[str, str] = MappingProxyType({"chloe": "America/New_York"})
# Guests see all channels or only the first one. People of another workspace come from a shared channel.
Kind = Literal["member", "guest", "single_channel_guest", "external"]
_EXTERNAL_TEAM = "T9EXTERNAL"


@dataclass(frozen=True, slots=True)
class Team:
    """``number`` counts the workspaces from 0 and makes ids unique among them."""

    id: str = "T0LOCAL"
    name: str = "Playground"
    domain: str = "local"
    number: int = 0
    is_in_organisation: bool = False


@dataclass(frozen=True, slots=True)
class Organisation:
    """An organisation of Enterprise Grid, to which all teams belong."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Person:
    id: str
    name: str
    real_name: str
    color: str
    token: str
    kind: Kind = "member"
    tz: str = _UTC

    def home(self, team: Team) -> str:
        """Return the id of the workspace that this person belongs to."""
        return _EXTERNAL_TEAM if self.kind == "external" else team.id


@dataclass(frozen=True, slots=True)
class Bot:
    """The bot user ``id`` of the app ``app_id``; ``bot_id`` is Slack's second id of the same bot."""

    id: str
    bot_id: str
    app_id: str
    name: str
    real_name: str
    color: str
    token: str
    app_token: str


Member = Person | Bot


@dataclass(frozen=True, slots=True)
class AppToken:
    """The holder of the app's token, which does not act in a workspace."""

    bot: Bot


Holder = Person | Bot | AppToken


def channel_id(name: str, team: Team) -> str:
    """Return the id of the channel with this name; raises ValueError for an invalid name."""
    return f"C{team.number}{_readable(name)}"


def teams(names: Sequence[str]) -> tuple[Team, ...]:
    """Return a team for each name. The first one's id and domain do not depend on the number of teams."""
    first, *others = names or ("",)
    if not first.strip():
        raise ValueError("there must be at least one workspace")
    found = [Team(name=first)]
    for number, name in enumerate(others, 1):
        domain = re.sub(r"[^a-z0-9]", "", name.lower())
        if not domain:
            raise ValueError(f"a workspace's name must contain letters or digits: {name!r}")
        found.append(Team(f"T{number}{domain.upper()}", name, domain, number))
    if len({team.domain for team in found}) != len(found) or len({team.name for team in found}) != len(found):
        raise ValueError(f"two workspaces give the same id: {', '.join(team.name for team in found)}")
    return tuple(found)


class Directory:
    """Look members up by id, by name and by token (``holders``). Never changes."""

    def __init__(  # noqa: PLR0913, PLR0917 - the kinds of members
        self,
        bot: str,
        people: Iterable[str] | Mapping[str, str],
        team: Team | None = None,
        kinds: Mapping[str, Kind] = MappingProxyType({}),
        apps: Sequence[str] = (),
        zones: Mapping[str, str] = ZONES,
    ) -> None:
        """``people`` are names, or a mapping of names to display names; ``kinds`` by name, else members.

        ``bot`` is the bot of the app under test, ``apps`` are the names of other apps. ``zones`` are the time zones of
        people, by name; the others' is UTC.

        """
        named = people.items() if isinstance(people, Mapping) else [(name, name.capitalize()) for name in people]
        if unknown := [f"{name}:{kind}" for name, kind in kinds.items() if kind not in get_args(Kind)]:
            raise ValueError(f"{unknown[0]!r}: the kinds of people are {', '.join(get_args(Kind))}")
        self.team = team or Team()
        self.bot = _bot(bot, self.team)
        self.people = tuple(
            replace(
                _person(*names, number, self.team),
                kind=kinds.get(names[0], "member"),
                tz=zones.get(names[0], _UTC),
            )
            for number, names in enumerate(named)
        )
        self.apps = tuple(
            replace(_bot(name, self.team), color=_COLORS[-1 - number % len(_COLORS)])
            for number, name in enumerate(apps)
        )
        everyone: tuple[Member, ...] = (*self.people, self.bot, *self.apps)
        self.members = {member.id: member for member in everyone}
        if len(self.members) != len(everyone):
            names = ", ".join([bot, *(person.name for person in self.people), *apps])
            raise ValueError(f"two names give the same id: {names}")
        self.holders: dict[str, Holder] = {
            self.bot.app_token: AppToken(self.bot),
            **{member.token: member for member in everyone},
        }

    def named(self, name: str) -> Member:
        """Find a member by name or id; raises KeyError."""
        for member in self.members.values():
            if name in (member.name, member.id):
                return member
        names = ", ".join(member.name for member in self.members.values())
        raise KeyError(f"no member is called {name!r}; there are {names}")

    def person(self, name: str) -> Person:
        member = self.named(name)
        if isinstance(member, Person):
            return member
        raise KeyError(f"{name!r} is a bot, not a person")

    def app(self, name: str) -> Bot:
        """Find the bot of an app other than the one under test; raises KeyError."""
        for app in self.apps:
            if name in (app.name, app.id):
                return app
        raise KeyError(
            f"no other app is called {name!r}; there are {', '.join(app.name for app in self.apps) or 'none'}"
        )

    def is_under_test(self, holder: Holder | None) -> bool:
        """Return whether a token is one of the app under test, whose calls have faults, limits and scopes."""
        return holder == self.bot or isinstance(holder, AppToken)


def _person(name: str, real_name: str, number: int, team: Team) -> Person:
    return Person(
        id=f"U{team.number}{_readable(name)}",
        name=name,
        real_name=real_name,
        color=_COLORS[number % len(_COLORS)],
        token=f"xoxp-{team.domain}-{name}",
    )


def organisation_named(name: str) -> Organisation:
    """Return the organisation with this name; raises ValueError for one without letters and digits."""
    part = re.sub(r"[^A-Z0-9]", "", name.upper())
    if not part:
        raise ValueError(f"an organisation's name must contain letters or digits: {name!r}")
    return Organisation(f"E0{part}", name)


def _bot(name: str, team: Team) -> Bot:
    """Return the bot in this team; its app and app token are the same in all teams, in an organisation its id, too."""
    part, number = _readable(name), 0 if team.is_in_organisation else team.number
    return Bot(
        id=f"U{number}{part}",
        bot_id=f"B{number}{part}",
        app_id=f"A0{part}",
        name=name,
        real_name=name.capitalize(),
        color="2b5797",
        token=f"xoxb-{team.domain}-{name}",
        app_token=f"xapp-1-A0{part}-local-{name}",
    )


def _readable(name: str) -> str:
    """Return the part of an id that comes from the name: ``ana`` gives ``ANA``."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise ValueError(f"a name may contain a-z, 0-9, '.', '_' and '-': {name!r}")
    return re.sub(r"[^A-Z0-9]", "", name.upper())
