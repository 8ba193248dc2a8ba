"""Actions on a message that open a form: ask an agent about the message, or summarise its thread."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from connector import texts
from connector.events import ASK, SUMMARISE, ThreadAddress, checked_id, checked_ts, plain_text, thread_of
from connector.formatting.content import Content, modal, one_line, plain, section, text_field
from connector.formatting.inline import escape
from connector.message_text import read
from connector.protocols import InboxEntry
from connector.records import LogCommand
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from connector.inbound.admission import Admitter
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)

_KINDS = (ASK, SUMMARISE)
# The fields of the forms.
QUESTION, INSTANCE, AUDIENCE = "ask_question", "ask_instance", "summarise_for"
_IN_THREAD, _IN_PRIVATE = "thread", "private"
# Slack's limits on an option, the options of a menu, and a text field.
_OPTION_CHARS, _MOST_OPTIONS, _QUESTION_CHARS = 75, 100, 3000
_QUOTE_CHARS = 300
_EXPIRED = frozenset({"expired_trigger_id", "invalid_trigger_id", "trigger_expired"})


@dataclass(frozen=True, slots=True)
class MessageAction:
    """A person chose an action on a message, or submitted its form.

    Args:
        kind: `ask` or `summarise`.
        place: the conversation of the message.
        ts: the message.
        at: time of the choice, as a ts.
        trigger: lets the app open the form within three seconds.
        quote: the text of the message, on one line.
        form: id of the submitted form; blank: none yet.
        question: the person's question; blank: none.
        instance: name of the chosen instance; blank: not chosen.
        is_private: whether only the person is to see the answer.
    """

    kind: str
    place: ThreadAddress
    user: str
    ts: str
    at: str
    trigger: str = ""
    quote: str = ""
    form: str = ""
    question: str = ""
    instance: str = ""
    is_private: bool = False

    @property
    def metadata(self) -> str:
        """The data that the form sends back."""
        return f"{self.place.conversation_id} {self.ts} {self.at} {self.user}"


def action_of(body: dict[str, Any], team: str, *, dm_threads: bool) -> MessageAction | None:
    """Parse an action on a message, or its form; `None`: neither.

    Like all parsers of events, it raises AttributeError, KeyError, TypeError or ValueError on a malformed payload.
    """
    view, user = body.get("view") or {}, body.get("user") or {}
    if body.get("type") == "view_submission":
        return _submitted(view, checked_id(user.get("id")), team) if view.get("callback_id") in _KINDS else None
    if body.get("type") != "message_action" or body.get("callback_id") not in _KINDS:
        return None
    message, channel = body["message"], checked_id(body["channel"]["id"])
    ts, at = checked_ts(message["ts"]), checked_ts(str(body["action_ts"]))
    place = ThreadAddress.of(team, channel, ts, thread_of(message), dm_threads=dm_threads)
    content = read(message)
    text = (
        plain_text(content.own, "") or plain_text(content.quoted, "") or ", ".join(each.name for each in content.files)
    )
    quote = one_line(text or ", ".join(content.unreadable), _QUOTE_CHARS)
    trigger = str(body.get("trigger_id") or "")
    return MessageAction(body["callback_id"], place, checked_id(user.get("id")), ts, at, trigger, quote)


def _submitted(view: dict[str, Any], user: str, team: str) -> MessageAction:
    """Parse a form. Its metadata are the conversation, the message, the time, and the person to whom it was shown."""
    conversation_id, ts, at, shown_to = str(view["private_metadata"]).split(" ")
    place, values = ThreadAddress.parse(conversation_id), view["state"]["values"]
    if place.team != team or shown_to != user:
        raise ValueError(f"{conversation_id!r} is not a conversation of this form")
    fields = {name: (values.get(name) or {}).get(name) or {} for name in (QUESTION, INSTANCE, AUDIENCE)}
    chosen = {name: (field.get("selected_option") or {}).get("value") for name, field in fields.items()}
    return MessageAction(
        view["callback_id"],
        place,
        user,
        checked_ts(ts),
        checked_ts(at),
        form=checked_id(view["id"]),
        question=str(fields[QUESTION].get("value") or "").strip(),
        instance=str(chosen[INSTANCE] or ""),
        is_private=chosen[AUDIENCE] == _IN_PRIVATE,
    )


class MessageActions:
    """Opens the forms of actions on messages, and stores the submitted ones."""

    def __init__(self, workspace: WorkspaceContext, admitter: Admitter) -> None:
        self._workspace = workspace
        self._admitter = admitter

    async def carry_out(self, action: MessageAction, refusal: str | None) -> None:
        """Open the form of an action, or store a submitted one; a refused person gets the reason instead.

        A form that is submitted again, or to another process, has the id of the stored entry: it is a duplicate.
        """
        router, background = self._workspace.router, self._workspace.background
        if refusal is not None:
            told = _form(action, [section(escape(refusal))])
            background.spawn(self._tell(action, refusal) if action.form else self._open(action, told))
            return
        instance, _ = await router.resolve(action.place.message(action.at))
        names = router.names(instance.name)
        if not action.form:
            personas = {name: router.instance(name).persona.name.strip() or name for name in names[:_MOST_OPTIONS]}
            quote = action.quote.removeprefix(f"@{router.bot_user}").strip()
            background.spawn(self._open(action, form(replace(action, quote=quote), personas)))
            return
        chosen = action.instance if action.instance in names else instance.name
        argument = action.question or texts.ABOUT_THIS
        if action.kind == SUMMARISE:
            argument = _IN_PRIVATE if action.is_private else ""
        command = LogCommand(action.kind, action.user, action.at, chosen, argument, action.ts)
        place, conversation_id = action.place, action.place.conversation_id
        entry = InboxEntry(f"{place.team}:{place.channel}:{action.kind}:{action.form}", "command", asdict(command))
        async with self._admitter.in_order(conversation_id):
            await self._workspace.runs.admit(conversation_id, entry)

    async def _open(self, action: MessageAction, view: dict[str, Any]) -> None:
        arguments = {"trigger_id": action.trigger, "view": json.dumps(view)}
        try:
            await self._workspace.background.client.call("views.open", arguments, CallSlot(Priority.PERSON))
        except SlackCallFailed as e:
            if e.error not in _EXPIRED:
                raise
            log.info("form.expired", action=action.kind, error=e.error)
            await self._tell(action, texts.FORM_EXPIRED)

    async def _tell(self, action: MessageAction, text: str) -> None:
        """Tell a person something in private: in the channel, or in a direct message if the bot may not post there."""
        client, content = self._workspace.background.client, Content(escape(text))
        try:
            await client.post_ephemeral(action.place, action.user, content, CallSlot(Priority.PERSON))
        except SlackCallFailed:
            direct = {"channel": action.user, **content.arguments()}
            await client.call("chat.postMessage", direct, CallSlot(run=action.user))


def form(action: MessageAction, personas: dict[str, str]) -> dict[str, Any]:
    """Return the form of an action; `personas` are the names of the instances in Slack, the chosen one first."""
    if action.kind == SUMMARISE:
        audiences = {_IN_THREAD: "In the thread, for everyone", _IN_PRIVATE: "Only to me, in a direct message"}
        return _form(action, [_choice(AUDIENCE, "Where do I answer?", "radio_buttons", audiences)], "Summarise")
    blocks = [section(f">{escape(action.quote)}"), text_field(QUESTION, "Your question", _QUESTION_CHARS)]
    if len(personas) > 1:
        blocks.append(_choice(INSTANCE, "Agent", "static_select", personas))
    return _form(action, blocks, "Ask")


def _form(action: MessageAction, blocks: list[dict[str, Any]], submit: str = "") -> dict[str, Any]:
    title = "Summarise this thread" if action.kind == SUMMARISE else "Ask about this message"
    buttons = {"submit": submit, "close": "Cancel"} if submit else {"close": "Close"}
    return modal(action.kind, action.metadata, title, blocks, **buttons)


def _choice(name: str, label: str, kind: str, choices: dict[str, str]) -> dict[str, Any]:
    """Return a field in which one of several choices (labels by value) is made; the first one is preset."""
    options = [{"text": plain(one_line(text, _OPTION_CHARS)), "value": value} for value, text in choices.items()]
    element = {"type": kind, "action_id": name, "options": options, "initial_option": options[0]}
    return {"type": "input", "block_id": name, "label": plain(label), "element": element}
