"""Slack's ``auth.*``, ``users.*`` and ``bots.*`` methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import bot_json, user_json
from local_slack.methods.calls import page_of
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods


def auth_test(call: Call) -> Json:
    team, member = call.workspace.directory.team, call.member
    answer = {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": member.name,
        "team_id": team.id,
        "user_id": member.id,
        "is_enterprise_install": False,
    }
    return answer | ({"bot_id": member.bot_id} if isinstance(member, Bot) else {})


def users(call: Call) -> Json:
    team = call.workspace.directory.team
    page, cursor = page_of(list(call.workspace.directory.members.values()), call.args, 999)
    return {
        "members": [user_json(member, team) for member in page],
        "cache_ts": 0,
        "response_metadata": {"next_cursor": cursor},
    }


def user_info(call: Call) -> Json:
    member = call.workspace.directory.members.get(call.args.required("user"))
    if member is None:
        raise SlackRefused("user_not_found")
    return {"user": user_json(member, call.workspace.directory.team)}


def bot_info(call: Call) -> Json:
    bot = call.workspace.directory.bot
    if call.args.text("bot") not in (None, bot.bot_id):
        raise SlackRefused("bot_not_found")
    return {"bot": bot_json(bot)}


METHODS: Methods = {
    "auth.test": auth_test,
    "users.list": users,
    "users.info": user_info,
    "bots.info": bot_info,
}
