"""Slack's ``agents.sessions.*`` and ``assistant.threads.*`` methods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.methods.calls import invalid, method
from local_slack.methods.rate_limits import SPECIAL, TIER_3
from local_slack.workspace.agents import SESSION_STATUSES, AgentSession
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.json_limits import Json
    from local_slack.methods.calls import Call

_TITLE = 200
_LOADING_MESSAGES = 10
_PROMPTS = 4


@method("agents.sessions.setStatus", "channel_id", "status", scope="chat:write", limits=TIER_3)
def set_session_status(call: Call) -> Json:
    """Set the lifecycle status; the first call creates the session, and only it accepts a title."""
    session = _session(call)
    status = call.args.one_of("status", SESSION_STATUSES)
    if not session.status:
        title = _title(call, least=0) or session.title
        session = replace(session, title=title, initiator=call.args.text("initiator_user_id"))
    username = call.args.text("username") or session.username
    call.workspace.keep_session(replace(session, status=status, username=username))
    return {"status": status, "agent_status": status, "title": session.title}


@method("agents.sessions.rename", "channel_id", "title", scope="chat:write", limits=TIER_3)
def rename_session(call: Call) -> Json:
    session = _session(call)
    if not session.status:
        raise SlackRefused("session_not_found")
    title = _title(call, least=1)
    call.workspace.keep_session(replace(session, title=title))
    return {"title": title}


@method("assistant.threads.setStatus", "channel_id", "status", "thread_ts", scope="assistant:write", limits=SPECIAL)
def set_status(call: Call) -> Json:
    """Set the status text of the agent; an empty one clears it."""
    session = _session(call)
    loading = call.args.texts("loading_messages")
    if len(loading) > _LOADING_MESSAGES:
        raise invalid(f"[ERROR] no more than {_LOADING_MESSAGES} items allowed [json-pointer:/loading_messages]")
    says = call.args.required("status")
    said = replace(session, says=says, loading=loading if says else (), said_at=call.workspace.now())
    call.workspace.keep_session(said)
    return {}


@method("assistant.threads.setTitle", "channel_id", "thread_ts", "title", scope="assistant:write", limits=TIER_3)
def set_title(call: Call) -> Json:
    call.workspace.keep_session(replace(_session(call), title=call.args.required("title")))
    return {}


@method("assistant.threads.setSuggestedPrompts", "channel_id", "prompts", scope="assistant:write", limits=TIER_3)
def set_prompts(call: Call) -> Json:
    session = _session(call)
    prompts = call.args.objects("prompts", "invalid_arguments")
    if not 0 < len(prompts) <= _PROMPTS:
        raise invalid(f"[ERROR] between 1 and {_PROMPTS} items needed [json-pointer:/prompts]")
    for number, prompt in enumerate(prompts):
        for field in ("title", "message"):
            if not isinstance(prompt.get(field), str):
                raise invalid(f"[ERROR] missing required field: {field} [json-pointer:/prompts/{number}]")
    shown = tuple((prompt["title"], prompt["message"]) for prompt in prompts)
    call.workspace.keep_session(replace(session, prompts=shown))
    return {}


def _session(call: Call) -> AgentSession:
    """Return the session of the named thread, or a new one that is not stored yet."""
    if not call.app.agent_view:
        raise SlackRefused("feature_disabled")
    channel = call.channel("channel_id")
    thread_ts = call.args.thread_ts() or ""
    if not thread_ts and not channel.is_im:
        raise invalid("[ERROR] missing required field: thread_ts")
    call.workspace.check_member(channel.id, call.member)
    if thread_ts:
        call.message(channel.id, thread_ts, "thread_not_found")
    return call.workspace.session(channel.id, thread_ts) or AgentSession(channel.id, thread_ts)


def _title(call: Call, *, least: int) -> str:
    title = call.args.text("title") or ""
    if not least <= len(title) <= _TITLE:
        raise invalid(f"[ERROR] must be between {least} and {_TITLE} characters [json-pointer:/title]")
    return title
