"""Slack's ``agents.sessions.*`` and ``assistant.threads.*`` methods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.methods.arguments import invalid
from local_slack.methods.conversations import visible_channel_id
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.sessions import SESSION_STATUSES, Session
from local_slack.workspace.timestamps import is_timestamp

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods

_TITLE = 200
_LOADING_MESSAGES = 10
_PROMPTS = 4


def set_session_status(call: Call) -> Json:
    """Set the lifecycle status; the first call creates the session, and only it accepts a title."""
    call.args.need("status")
    session = _session(call)
    status = call.args.one_of("status", SESSION_STATUSES)
    if not session.status:
        title = _title(call, least=0) or session.title
        session = replace(session, title=title, initiator=call.args.text("initiator_user_id"))
    session = replace(session, status=status)
    call.workspace.keep_session(session)
    return {"status": status, "agent_status": status, "title": session.title}


def rename_session(call: Call) -> Json:
    call.args.need("title")
    session = _session(call)
    if not session.status:
        raise SlackRefused("session_not_found")
    call.workspace.keep_session(replace(session, title=_title(call, least=1)))
    return {"title": _title(call, least=1)}


def set_status(call: Call) -> Json:
    """Set the status text of the agent; an empty one clears it."""
    call.args.need("channel_id", "status", "thread_ts")
    session = _session(call)
    loading = call.args.texts("loading_messages")
    if len(loading) > _LOADING_MESSAGES:
        raise invalid(f"[ERROR] no more than {_LOADING_MESSAGES} items allowed [json-pointer:/loading_messages]")
    says = call.args.required("status")
    said = replace(session, says=says, loading=loading if says else (), said_at=call.workspace.now())
    call.workspace.keep_session(said)
    return {}


def set_title(call: Call) -> Json:
    call.args.need("channel_id", "thread_ts", "title")
    session = _session(call)
    call.workspace.keep_session(replace(session, title=call.args.required("title")))
    return {}


def set_prompts(call: Call) -> Json:
    call.args.need("channel_id", "prompts")
    session = _session(call)
    prompts = call.args.objects("prompts", "invalid_arguments") or ()
    if not 0 < len(prompts) <= _PROMPTS:
        raise invalid(f"[ERROR] between 1 and {_PROMPTS} items needed [json-pointer:/prompts]")
    for number, prompt in enumerate(prompts):
        for field in ("title", "message"):
            if not isinstance(prompt.get(field), str):
                raise invalid(f"[ERROR] missing required field: {field} [json-pointer:/prompts/{number}]")
    shown = tuple((prompt["title"], prompt["message"]) for prompt in prompts)
    call.workspace.keep_session(replace(session, prompts=shown))
    return {}


def _session(call: Call) -> Session:
    """Return the session of the named thread, or a new one that is not stored yet."""
    if not call.app.agent_view:
        raise SlackRefused("feature_disabled")
    call.args.need("channel_id")
    channel = visible_channel_id(call, call.args.required("channel_id"))
    thread_ts = call.args.text("thread_ts") or ""
    if thread_ts and not is_timestamp(thread_ts):
        raise SlackRefused("invalid_thread_ts")
    if not thread_ts and not call.workspace.channel(channel).is_im:
        raise invalid("[ERROR] missing required field: thread_ts")
    call.workspace.check_member(channel, call.member)
    if thread_ts and call.workspace.message(channel, thread_ts) is None:
        raise SlackRefused("thread_not_found")
    return call.workspace.session(channel, thread_ts) or Session(channel, thread_ts)


def _title(call: Call, *, least: int) -> str:
    title = call.args.text("title") or ""
    if not least <= len(title) <= _TITLE:
        raise invalid(f"[ERROR] must be between {least} and {_TITLE} characters [json-pointer:/title]")
    return title


METHODS: Methods = {
    "agents.sessions.rename": rename_session,
    "agents.sessions.setStatus": set_session_status,
    "assistant.threads.setStatus": set_status,
    "assistant.threads.setSuggestedPrompts": set_prompts,
    "assistant.threads.setTitle": set_title,
}
