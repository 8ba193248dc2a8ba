"""The arguments that all posting methods share."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Persona
from local_slack.workspace.people import Bot
from local_slack.workspace.timestamps import is_timestamp

if TYPE_CHECKING:
    from local_slack.methods.calls import Call

# Slack documents no limit; this is the size of one message in its older APIs.
_METADATA_BYTES = 16_384


def metadata_of(call: Call) -> dict[str, Any] | None:
    metadata = call.args.object("metadata", "invalid_metadata_format")
    if not metadata:
        return None
    if not isinstance(call.member, Bot):
        raise SlackRefused("metadata_must_be_sent_from_app")
    if not isinstance(metadata.get("event_type"), str):
        raise SlackRefused("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise SlackRefused("invalid_metadata_format")
    if not set(metadata) <= {"event_type", "event_payload", "entities"}:
        raise SlackRefused("invalid_metadata_schema")
    if len(json.dumps(metadata, ensure_ascii=False).encode()) > _METADATA_BYTES:
        raise SlackRefused("metadata_too_large")
    return metadata


def persona_of(call: Call) -> Persona | None:
    """Return the persona of a message. Only apps can set one; a person's is ignored."""
    persona = Persona(call.args.text("username"), call.args.text("icon_emoji"), call.args.text("icon_url"))
    return persona if isinstance(call.member, Bot) and persona != Persona() else None


def thread_ts_of(call: Call) -> str | None:
    thread_ts = call.args.text("thread_ts")
    if thread_ts and not is_timestamp(thread_ts):
        raise SlackRefused("invalid_thread_ts")
    return thread_ts or None
