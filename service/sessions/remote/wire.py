"""Convert between the connector's values and the messages of `sessions.proto`, and between errors and the status."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import structlog

from connector.protocols import LeaseLost, MessageAuthor, MessageFile, RunFailed, TalkMessage, ThreadTalk
from orchestrator_interactive.interactions.records import Key
from service.sessions.remote import sessions_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger(__name__)

# Prompts contain forwarded messages, and events contain texts of models and input of tools.
_MOST_BYTES = 64 * 1024 * 1024
# A dead peer, such as a machine without power, is noticed after the sum of both.
_PING_EVERY_MS, _PING_WITHIN_MS = 5_000, 5_000
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", _MOST_BYTES),
    ("grpc.keepalive_time_ms", _PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_WITHIN_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_EVERY_MS // 2),
)
_REFUSED = "The process of this agent refuses the message. The operator of this bot can find the reason in its log."
# The status of a call if the process ends, or is not there.
_GONE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
    }
)
_STATUS = {RunFailed: grpc.StatusCode.FAILED_PRECONDITION, LeaseLost: grpc.StatusCode.ABORTED}


class Disconnected(Exception):  # noqa: N818 - a fact about the connection
    """The process of the sessions is gone, or ends."""


def status_of(error: RunFailed | LeaseLost) -> tuple[grpc.StatusCode, str]:
    """Return the status of a call that ends with an error of a run."""
    return _STATUS[type(error)], str(error)


def error_of(error: grpc.aio.AioRpcError) -> RunFailed | LeaseLost | Disconnected:
    """Return the error that a failed call stands for."""
    code, details = error.code(), error.details() or ""
    if code is _STATUS[RunFailed]:
        return RunFailed(details)
    if code is _STATUS[LeaseLost]:
        return LeaseLost(details)
    if code in _GONE:
        return Disconnected(f"{code.name}: {details}")
    log.error("sessions.refused", status=code.name, error=details)
    return RunFailed(_REFUSED)


def session_of(key: Key, fence: int | None) -> pb.Session:
    return pb.Session(instance=key.agent_id, conversation=key.conversation_id, fence=fence)


def key_of(session: pb.Session) -> Key:
    """Return the key of a session's log.

    Raises:
        ValueError: an id is blank.
    """
    return Key(session.conversation, session.instance)


def fence_of(session: pb.Session) -> int | None:
    return session.fence if session.HasField("fence") else None


def message(  # noqa: PLR0913 - the parts of a message
    text: str,
    *,
    message_id: str | None,
    author: MessageAuthor | None,
    written_s: float | None,
    files: tuple[MessageFile, ...] = (),
    talk: ThreadTalk,
) -> pb.Message:
    return pb.Message(
        id=message_id or "",
        text=text,
        author=None if author is None else pb.Author(**asdict(author)),
        written_s=written_s,
        files=map(sent_file, files),
        talk=[
            pb.Message(
                id=each.id,
                text=each.text,
                author=pb.Author(**asdict(each.author)),
                written_s=each.written_s,
                files=[pb.File(name=name) for name in each.files],
            )
            for each in talk.messages
        ],
        left_out=talk.left_out,
    )


def arguments_of(sent: pb.Message) -> dict[str, Any]:
    """Return the keyword arguments of `SessionManager.execute` and `inject` that a message has, without its text."""
    return {
        "message_id": sent.id or None,
        "author": _author(sent.author) if sent.HasField("author") else None,
        "written_s": sent.written_s if sent.HasField("written_s") else None,
        "files": tuple(map(file_of, sent.files)),
        "talk": ThreadTalk(
            tuple(
                TalkMessage(
                    each.id, _author(each.author), each.text, each.written_s, tuple(file.name for file in each.files)
                )
                for each in sent.talk
            ),
            sent.left_out,
        ),
    }


def sent_file(file: MessageFile) -> pb.File:
    return pb.File(**asdict(file))


def file_of(sent: pb.File) -> MessageFile:
    return MessageFile(sent.name, sent.note, sent.text, sent.image, sent.image_path, sent.problem)


def _author(sent: pb.Author) -> MessageAuthor:
    return MessageAuthor(sent.id, sent.name, sent.tz)


def to_json(value: Mapping[str, Any]) -> str:
    """Return a JSON object. Values of events that are not JSON, such as those of other orchestrators, become text."""
    return json.dumps(value, default=str, ensure_ascii=False)
