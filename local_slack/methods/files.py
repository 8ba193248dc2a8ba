"""Slack's ``files.*`` methods: upload in three steps, look up, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import file_json
from local_slack.methods.arguments import invalid
from local_slack.methods.conversations import visible_channel_id
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.timestamps import is_timestamp

if TYPE_CHECKING:
    from local_slack.methods.calls import Call, Json, Methods
    from local_slack.workspace.files import File

_LARGEST_FILE_BYTES = 1024**3
_MOST_AT_ONCE = 10


def get_upload_url(call: Call) -> Json:
    call.args.need("filename", "length")
    name, length = call.args.required("filename"), call.args.integer("length")
    if not name:
        raise invalid("[ERROR] must be more than 0 characters [json-pointer:/filename]")
    if length <= 0:
        raise invalid("[ERROR] must be greater than 0 [json-pointer:/length]")
    if length > _LARGEST_FILE_BYTES:
        raise SlackRefused("file_upload_size_restricted")
    file = call.workspace.files.begin(call.member, name, length, call.base_url)
    return {"upload_url": file.upload_url, "file_id": file.id}


def complete_upload(call: Call) -> Json:
    """Complete the uploads and share them in one message if a channel is given; a refused call changes nothing."""
    call.args.need("files")
    wanted = _wanted(call)
    places = [visible_channel_id(call, name) for name in _places(call)]
    thread_ts = call.args.text("thread_ts")
    if thread_ts and not is_timestamp(thread_ts):
        raise SlackRefused("invalid_thread_ts")
    for place in places:
        call.workspace.check_post(place, call.member, thread_ts)
    files = call.workspace.files.complete(call.member, wanted)
    comment = call.args.text("initial_comment") or ""
    for place in places:
        call.workspace.post(place, call.member, Body(comment, files=files), thread_ts=thread_ts or None)
    return {"files": [file_json(file) for file in files]}


def info(call: Call) -> Json:
    return {"file": file_json(_file(call)), "comments": [], "response_metadata": {"next_cursor": ""}}


def delete(call: Call) -> Json:
    call.args.need("file")
    call.workspace.withdraw(call.workspace.files.delete(call.member, call.args.required("file")))
    return {}


def _file(call: Call) -> File:
    call.args.need("file")
    file = call.workspace.file(call.args.required("file"))
    if file is None:
        raise SlackRefused("file_not_found")
    return file


def _wanted(call: Call) -> list[tuple[str, str]]:
    """Return the id and title of each file to complete."""
    files = call.args.objects("files", "invalid_arguments")
    if not files:
        raise invalid("[ERROR] no files to complete [json-pointer:/files]")
    if len(files) > _MOST_AT_ONCE:
        raise invalid(f"[ERROR] no more than {_MOST_AT_ONCE} items allowed [json-pointer:/files]")
    for number, file in enumerate(files):
        if not isinstance(file.get("id"), str):
            raise invalid(f"[ERROR] missing required field: id [json-pointer:/files/{number}]")
    return [(file["id"], str(file.get("title") or "")) for file in files]


def _places(call: Call) -> list[str]:
    named = call.args.text("channel_id") or call.args.text("channels") or ""
    return [name.strip() for name in named.split(",") if name.strip()]


METHODS: Methods = {
    "files.getUploadURLExternal": get_upload_url,
    "files.completeUploadExternal": complete_upload,
    "files.info": info,
    "files.delete": delete,
}
