"""The reactions under one message: ordered by first use, each emoji with its users in order."""

from __future__ import annotations

import re
from dataclasses import replace

from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Reaction

_NAME = re.compile(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?")
_EMOJI_PER_MESSAGE = 50
_EMOJI_PER_PERSON = 23

Reactions = tuple[Reaction, ...]


def added(reactions: Reactions, name: str, user: str) -> Reactions:
    _check(name)
    if any(r.name == name and user in r.users for r in reactions):
        raise SlackRefused("already_reacted")
    if sum(user in r.users for r in reactions) >= _EMOJI_PER_PERSON:
        raise SlackRefused("too_many_reactions")
    if any(r.name == name for r in reactions):
        return tuple(replace(r, users=(*r.users, user)) if r.name == name else r for r in reactions)
    if len(reactions) >= _EMOJI_PER_MESSAGE:
        raise SlackRefused("too_many_emoji")
    return (*reactions, Reaction(name, (user,)))


def removed(reactions: Reactions, name: str, user: str) -> Reactions:
    _check(name)
    if not any(r.name == name and user in r.users for r in reactions):
        raise SlackRefused("no_reaction")
    fewer = (replace(r, users=tuple(u for u in r.users if u != user)) if r.name == name else r for r in reactions)
    return tuple(r for r in fewer if r.users)


def _check(name: str) -> None:
    """Emoji names come without colons; whether such an emoji exists is not checked."""
    if not _NAME.fullmatch(name):
        raise SlackRefused("invalid_name")
