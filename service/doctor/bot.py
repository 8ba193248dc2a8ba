"""Check the bot token, its scopes, and the local clock against Slack's."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from connector.setup.manifest import BOT_SCOPES
from connector.slack_api.errors import SlackCallFailed
from service.config.config import ConfigError
from service.config.tokens import bot_token
from service.doctor.findings import failed, passed, skipped, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from connector.setup.manifest import MethodRequirement
    from service.config.config import Environment
    from service.doctor.findings import DoctorFinding
    from service.doctor.web_api import WebApi, WebApiAnswer

# Maximum age of a signed request from Slack; a clock that is off by more rejects all of them. In seconds.
_MOST_OFF_S = 300
_OFF_S = 30


async def answer_to(api: WebApi, environment: Environment) -> WebApiAnswer | DoctorFinding:
    """Call `auth.test` and return Slack's answer, or a finding if the call failed."""
    try:
        return await api.call("auth.test", bot_token(environment))
    except ConfigError as e:
        return failed("bot token", str(e))
    except SlackCallFailed as e:
        if e.is_transient:
            return failed("Slack", f"cannot be reached at {api.url} ({e}). Check the network and SLACK_API_URL.")
        return failed(
            "bot token",
            f"Slack does not accept SLACK_BOT_TOKEN ({e.error}). Copy it again from your app's page at "
            "api.slack.com/apps, under OAuth & Permissions.",
        )


def findings_in(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    """Check identity, scopes and clock in the answer to `auth.test`."""
    identity = answer.data
    if not identity.get("bot_id"):
        yield failed("bot token", "SLACK_BOT_TOKEN is not a bot token. Use the token that begins with xoxb-.")
    else:
        where = f"{identity.get('team')} ({identity.get('team_id')})"
        yield passed("bot token", f"valid: @{identity.get('user')} in {where}.")
    yield from _of_scopes(answer)
    yield _of_clock(answer)


def _of_scopes(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    header = answer.headers.get("x-oauth-scopes")
    if header is None:
        yield skipped("scopes", "Slack does not return the token's scopes.")
        return
    granted = {scope.strip() for scope in header.split(",")}
    missing = [need for need in BOT_SCOPES if need.name not in granted]
    if not missing:
        yield passed("scopes", f"all {len(BOT_SCOPES)} are granted.")
    for need in missing:
        yield _missing(need)


def _missing(need: MethodRequirement) -> DoctorFinding:
    fix = "Add it under OAuth & Permissions → Scopes, and reinstall the app."
    if need.is_required:
        return failed("scopes", f"{need.name} is missing; it is required to {need.purpose}. {fix}")
    return warning("scopes", f"{need.name} is missing: {need.without}. {fix}")


def _of_clock(answer: WebApiAnswer) -> DoctorFinding:
    try:
        theirs_s = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return skipped("clock", "Slack does not return its time.")
    off_s = answer.at_s - theirs_s
    if abs(off_s) <= _OFF_S:
        return passed("clock", "agrees with Slack's.")
    problem = (
        f"{abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} Slack's. Synchronize this machine's time (NTP)."
    )
    return failed("clock", problem) if abs(off_s) > _MOST_OFF_S else warning("clock", problem)
