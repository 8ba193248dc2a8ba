"""The appearance of a request: its message with buttons, the answer in its place, and the form for own words."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connector.events import (
    ALWAYS_ACTION,
    CHOOSE_ACTIONS,
    OPTIONS_ACTION,
    REASON_ACTION,
    REQUEST_FORM,
    REQUEST_TEXT,
    SEND_ACTION,
    WRITE_ACTION,
)
from connector.formatting.content import Content, button, modal, moment, mrkdwn, one_line, plain, section, text_field
from connector.formatting.inline import escape
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.splitting import pieces
from connector.protocols import DENY

if TYPE_CHECKING:
    from connector.events import RequestAddress, RequestForm
    from connector.protocols import PersonAnswer, PersonRequest
    from connector.records import PendingMessage, RequestRecord

_TITLE_CHARS = 280
# Longer details become a file: Slack limits the text of all blocks of a message.
_PIECES, _PIECE_CHARS = 4, 2_800
_LABEL_CHARS = 70
_REASON_CHARS = 1_000


def waiting_content(address: RequestAddress, record: RequestRecord, first: PendingMessage) -> Content:
    """Return the message of a request that waits; `first`: the first message of the run."""
    request = record.request
    asker = " of ".join(filter(None, (request.asker, first.worker_name)))
    asks = f"{escape(asker)} asks" if asker else ""
    notes = [asks, request.risk, f"{_who(request, first.owner)} may answer until {moment(record.deadline_s)}"]
    if request.default is not None and request.options:
        notes.append(f"then: {escape(request.options[request.default])}")
    if request.needed > 1:
        notes.append(f"{len(record.votes)} of {request.needed} have allowed it")
    if request.takes_text and not request.person:
        names = " ".join(f"@{each}" for each in (address.place.worker, request.asker) if each)
        notes.append(f"or write `{escape(names)} …`" if names else "or reply here in your own words")
    context = {"type": "context", "elements": [mrkdwn(" · ".join(filter(None, notes)))]}
    return Content(_title(request), (*_body(request), context, *_controls(str(address), record)))


def waiting_line(record: RequestRecord, owner: str) -> str:
    """Return a request that waits on one line, in Slack's markup."""
    return f"{_title(record.request)} {_who(record.request, owner)} may answer until {moment(record.deadline_s)}."


def answered_content(record: RequestRecord) -> Content:
    """Return the message of a request that was answered, without buttons."""
    outcome = {"type": "context", "elements": [mrkdwn(outcome_of(record))]}
    return Content(_title(record.request), (*_body(record.request), outcome))


def outcome_of(record: RequestRecord) -> str:
    """Say in Slack's markup how a request was answered, by whom and when."""
    request, answer = record.request, record.answer
    if answer is None:
        return "It waits for an answer."
    by = escape(" and ".join(answer.names)) or "no one"
    chosen = escape(", ".join(request.options[place] for place in answer.chosen))
    at = moment(answer.at_s)
    text = f": “{escape(one_line(answer.text, _REASON_CHARS))}”" if answer.text else ""
    scope = next((f", {escape(label)}" for name, label in request.always if name == answer.always), "")
    match answer.kind:
        case "void":
            said = f"⚪ {escape(answer.text)}"
        case "deadline":
            said = f"⌛ No one answered in time. {chosen or 'There is no answer'}."
        case "message":
            said = f"💬 Answered in the thread · {at}"
        case _ if not request.is_approval:
            said = f"☑️ {by}: {chosen or escape(one_line(answer.text, _REASON_CHARS))} · {at}"
        case _:
            said = f"✅ {by} allowed it{scope} · {at}" if answer.allows else f"⛔ {by} denied it · {at}{text}"
    return said


def answer_line(answer: PersonAnswer, request: PersonRequest) -> str:
    """Return the answer on one line in Slack's markup, for a private reply."""
    chosen = ", ".join(request.options[place] for place in answer.chosen)
    by = " and ".join(answer.names)
    return escape(one_line(f"{chosen or answer.text or 'answered'}{f', by {by}' if by else ''}", _REASON_CHARS))


def form(wanted: RequestForm) -> dict[str, Any]:
    """Return the form in which a person writes the reason of a denial, or an answer."""
    is_reason = wanted.chosen == (DENY,)
    label = "Why not? The agent reads this." if is_reason else "Your answer"
    field = text_field(REQUEST_TEXT, label, _REASON_CHARS, focus_on_load=True)
    title, submit = ("Deny", "Deny") if is_reason else ("Answer", "Send")
    return modal(REQUEST_FORM, wanted.metadata, title, [field], submit=submit, close="Cancel")


def who_may(request: PersonRequest, owner: str) -> str:
    """Name the users that may answer, in Slack's markup, for the middle of a sentence."""
    return _who(request, owner).replace("Everyone", "everyone")


def _title(request: PersonRequest) -> str:
    return f"{_sign(request)} {escape(one_line(request.title, _TITLE_CHARS))}"


def _sign(request: PersonRequest) -> str:
    return "✋" if request.is_approval else "❓"


def details_of(request: PersonRequest) -> str:
    """Return the Markdown of a request under the first line of its title; a line that is cut is repeated whole."""
    first, _, rest = request.title.strip().partition("\n")
    more = request.title.strip() if len(first) > _TITLE_CHARS else rest.strip()
    return "\n\n".join(filter(None, (more, request.details)))


def file_of(request: PersonRequest) -> str:
    """Return the details that do not fit into the message of a request; blank: they do. Escaped text is longer."""
    details = details_of(request)
    return details if len(details) > _PIECES * _PIECE_CHARS or len(_pieces(details)) > _PIECES else ""


def without_file(request: PersonRequest) -> PersonRequest:
    """Return a request without the end of details that become a file: its record is stored with each change."""
    return replace(request, details=request.details[: _PIECES * _PIECE_CHARS + 1])


def _body(request: PersonRequest) -> list[dict[str, Any]]:
    first, _, _ = request.title.strip().partition("\n")
    title = section(f"*{_sign(request)} {escape(one_line(first, _TITLE_CHARS))}*")
    return [title] if file_of(request) else [title, *map(section, _pieces(details_of(request)))]


def _pieces(details: str) -> list[str]:
    return list(pieces(markdown_to_slack(details), _PIECE_CHARS)) if details else []


def _who(request: PersonRequest, owner: str) -> str:
    if request.person:
        return f"<@{request.person}>"
    match request.approvers:
        case ("owner",):
            return f"<@{owner}>"
        case ("participants",):
            return "Everyone who takes part here"
        case ("anyone",):
            return "Everyone here"
    return " or ".join(f"<@{owner if each == 'owner' else each}>" for each in request.approvers)


def _option(label: str, value: str) -> dict[str, Any]:
    return {"text": plain(one_line(label, _LABEL_CHARS)), "value": value}


def _controls(value: str, record: RequestRecord) -> list[dict[str, Any]]:
    request, elements = record.request, list[dict[str, Any]]()
    if request.is_multiple or len(request.options) > len(CHOOSE_ACTIONS):
        kind = "checkboxes" if request.is_multiple else "radio_buttons"
        options = [_option(label, str(place)) for place, label in enumerate(request.options)]
        menu: dict[str, Any] = {"type": kind, "action_id": OPTIONS_ACTION, "options": options}
        block = {"type": "actions", "block_id": f"{OPTIONS_ACTION}:{value}", "elements": [menu]}
        return [block, _actions([button(SEND_ACTION, "Send", value, style="primary"), *_own_words(request, value)])]
    styles = ({"style": "primary"}, {"style": "danger"}) if request.is_approval else ()
    for place, label in enumerate(request.options):
        style = styles[place] if place < len(styles) else {}
        elements.append(button(CHOOSE_ACTIONS[place], one_line(label, _LABEL_CHARS), value, **style))
    if request.needed > 1:
        elements[0]["confirm"] = {
            "title": plain("Allow it?"),
            "text": plain(f"{request.needed} people must allow this."),
            "confirm": plain("Allow"),
            "deny": plain("Cancel"),
        }
    elements += _own_words(request, value)
    if request.always:
        options = [_option(label, f"{scope} {value}") for scope, label in request.always]
        menu = {"type": "static_select", "action_id": ALWAYS_ACTION, "placeholder": plain("Always allow…")}
        elements.append({**menu, "options": options})
    return [_actions(elements)] if elements else []


def _own_words(request: PersonRequest, value: str) -> list[dict[str, Any]]:
    if request.is_approval:
        return [button(REASON_ACTION, "Deny with a reason…", value)]
    return [button(WRITE_ACTION, "Write an answer…", value)] if request.takes_text and request.person else []


def _actions(elements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "actions", "elements": elements}
