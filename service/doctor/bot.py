"""The bot's token: whether Slack takes it, what it may do, and what time it is there."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from connector.setup.scopes import BOT_SCOPES
from connector.slack_api.errors import SlackCallFailed
from service.config.config import ConfigError
from service.config.tokens import bot_token
from service.doctor.findings import lacking, unknown, well, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.setup.scopes import MethodRequirement
    from service.config.config import Environment
    from service.doctor.findings import DoctorFinding
    from service.doctor.web_api import WebApi, WebApiAnswer

# Slack's requests are refused when they seem to be older than that.
_MOST_OFF_S = 300
_OFF_S = 30


async def answer_to(api: WebApi, environment: Environment) -> WebApiAnswer | DoctorFinding:
    """What Slack says about the bot's token; where it says nothing, what is wrong."""
    try:
        return await api.call("auth.test", bot_token(environment))
    except ConfigError as e:
        return wrong("bot token", str(e))
    except SlackCallFailed as e:
        if e.is_passing:
            return wrong("Slack", f"cannot be reached at {api.url} ({e}). Check the network, and SLACK_API_URL.")
        return wrong(
            "bot token",
            f"Slack does not accept SLACK_BOT_TOKEN ({e.error}). Copy it again from your app's page at "
            "api.slack.com/apps, under OAuth & Permissions.",
        )


def findings_in(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    """What the answer to `auth.test` tells: who we are, what we may do, and how late it is."""
    who = answer.data
    if not who.get("bot_id"):
        yield wrong("bot token", "SLACK_BOT_TOKEN is not a bot's token. Take the one that begins with xoxb-.")
    else:
        yield well("bot token", f"is accepted: @{who.get('user')} in {who.get('team')} ({who.get('team_id')}).")
    yield from _of_scopes(answer)
    yield _of_clock(answer)


def _of_scopes(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    told = answer.headers.get("x-oauth-scopes")
    if told is None:
        yield unknown("scopes", "Slack does not tell which ones the token has.")
        return
    granted = {scope.strip() for scope in told.split(",")}
    missing = [need for need in BOT_SCOPES if need.name not in granted]
    if not missing:
        yield well("scopes", f"all {len(BOT_SCOPES)} are granted.")
    for need in missing:
        yield _missing(need)


def _missing(need: MethodRequirement) -> DoctorFinding:
    what_to_do = "Add it under OAuth & Permissions → Scopes, and reinstall the app."
    if need.is_required:
        return wrong("scopes", f"{need.name} is missing, which it takes to {need.purpose}. {what_to_do}")
    return lacking("scopes", f"{need.name} is missing: {need.without}. {what_to_do}")


def _of_clock(answer: WebApiAnswer) -> DoctorFinding:
    try:
        theirs_s = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return unknown("clock", "Slack does not tell what time it is.")
    off_s = answer.at_s - theirs_s
    if abs(off_s) <= _OFF_S:
        return well("clock", "agrees with Slack's.")
    said = f"is {abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} Slack's. Have this machine's time set (NTP)."
    return wrong("clock", said) if abs(off_s) > _MOST_OFF_S else lacking("clock", said)
