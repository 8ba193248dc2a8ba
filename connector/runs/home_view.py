"""The appearance of the Home tab."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from connector import texts
from connector.events import HOME_REVOKE, HOME_STOP, HOME_UNSCHEDULE, RequestAddress, ThreadAddress, is_direct
from connector.formatting.content import button, counted, moment, mrkdwn, one_line, plain, section
from connector.formatting.inline import escape
from connector.protocols import Usage
from connector.runs.request_view import details_of, waiting_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from connector.protocols import AlwaysRule, EndedRun, Instance
    from connector.records import RequestRecord, RunRecord
    from connector.schedules import Schedule

    Block = dict[str, Any]

# Slack's limit is 100 blocks; a request takes at most six.
_MOST_BLOCKS = 100
_MOST_ACTIVE, _MOST_ASKED, _MOST_RULES, _MOST_INSTANCES, _MOST_SCHEDULES = 10, 8, 15, 15, 15
_TITLE_CHARS = 80
_TOOLS_CHARS = 200
# Requests with longer details are answered in their threads.
_DETAILS_CHARS = 1_500


@dataclass(frozen=True, slots=True)
class Active:
    """Work of this person in a conversation that runs, or waits for its run (`run` is blank).

    `is_asking`: the run waits for an answer of people.
    """

    conversation_id: str
    prompt: str
    since_s: float
    run: str = ""
    is_asking: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that this person may answer. `is_reader`: they take part in the conversation."""

    conversation_id: str
    run: RunRecord
    request: RequestRecord
    is_reader: bool = True


@dataclass(frozen=True, slots=True)
class Recent:
    """A conversation, and when its latest run of this person ended."""

    conversation_id: str
    title: str
    instance: str
    ended_s: float


@dataclass(frozen=True, slots=True)
class HomeContent:
    """The content of one person's Home tab; times in seconds since the epoch, `url` of the workspace."""

    bot_user: str
    url: str
    now_s: float
    active: tuple[Active, ...]
    asked: tuple[Asked, ...]
    rules: tuple[AlwaysRule, ...]
    recent: tuple[Recent, ...]
    ended: tuple[EndedRun, ...]
    instances: tuple[Instance, ...]
    schedules: tuple[Schedule, ...] = ()


def home_view(content: HomeContent) -> Block:
    """Return the view for `views.publish`."""
    names = {each.name: each.persona.name for each in content.instances}
    is_new = not (content.ended or content.active)
    blocks = [
        *(_welcome(content) if is_new else ()),
        *_part(
            "Waiting for an answer", _asked(content), content.asked[_MOST_ASKED:], "Write `!approvals` in a thread."
        ),
        *_part("At work", _active(content), content.active[_MOST_ACTIVE:]),
        *_part("Scheduled", _schedules(content), content.schedules[_MOST_SCHEDULES:]),
        *_part("Recent conversations", _recent(content, names)),
        *_part("Always allowed", _rules(content, names), content.rules[_MOST_RULES:]),
        *_part("Usage", _usage(content)),
        *_part("Agents", map(_instance, content.instances[:_MOST_INSTANCES])),
    ]
    footer = {"type": "context", "elements": [mrkdwn(f"As of {moment(content.now_s)}")]}
    return {"type": "home", "blocks": [*blocks[: _MOST_BLOCKS - 1], footer]}


def refused_view(refusal: str) -> Block:
    """Return the view for a person without access."""
    return {"type": "home", "blocks": [section(refusal)]}


def _part(title: str, blocks: Iterable[Block], left_out: tuple[object, ...] = (), hint: str = "") -> list[Block]:
    """Return the blocks under a header; nothing if there are none."""
    shown = list(blocks)
    if left_out:
        shown.append({"type": "context", "elements": [mrkdwn(f"{len(left_out)} more. {hint}".strip())]})
    return [{"type": "header", "text": plain(title)}, *shown, {"type": "divider"}] if shown else []


def _welcome(content: HomeContent) -> list[Block]:
    first = content.instances[0].persona.name if content.instances else "the agent"
    text = (
        f"Write to {escape(first)} under *Messages*, or mention <@{content.bot_user}> in a channel: "
        "each message begins a thread, and the answer comes there.\n"
        "• While it works, just reply: it reads what you write.\n"
        "• ❌ on your message stops it, and 👍 or 👎 on an answer rates it.\n"
        "• It asks with buttons before it does something risky. Here you find all that waits for you.\n"
        "• `!help` in a thread lists the commands."
    )
    return [{"type": "header", "text": plain("Welcome")}, section(text), {"type": "divider"}]


def _active(content: HomeContent) -> Iterator[Block]:
    for each in content.active[:_MOST_ACTIVE]:
        sign = "✋" if each.is_asking else "⚙️" if each.run else "⏳"
        since = f"since {moment(each.since_s, '{time}')}" if each.run else "waits for its turn"
        since = f"waits for an answer, {since}" if each.is_asking else since
        title = _link(content.url, each.conversation_id, each.prompt)
        block = section(f"{sign} {title} · {_where(each.conversation_id)} · {since}")
        if each.run:
            block["accessory"] = button(HOME_STOP, "Stop", f"{each.conversation_id} {each.run}", style="danger")
        yield block


def _asked(content: HomeContent) -> Iterator[Block]:
    for each in content.asked[:_MOST_ASKED]:
        place, run = ThreadAddress.parse(each.conversation_id), each.run
        title = f"a conversation of <@{run.first.owner}>"
        if each.is_reader:
            title = f"{_link(content.url, each.conversation_id, run.first.prompt)} · {_where(each.conversation_id)}"
        shown = waiting_content(RequestAddress(place, run.id, each.request.key), each.request, run.first).blocks
        if len(details_of(each.request.request)) <= _DETAILS_CHARS:
            yield from shown
            hint = "for"
        else:  # an approval without its details would be blind
            yield shown[0]
            hint = "It is long: read it in the thread, and answer there:"
        yield {"type": "context", "elements": [mrkdwn(f"{hint} {title}")]}


def _recent(content: HomeContent, names: dict[str, str]) -> Iterator[Block]:
    for each in content.recent:
        title = _link(content.url, each.conversation_id, each.title or "A conversation")
        name = escape(names.get(each.instance, each.instance))
        yield section(f"{title} · {name} · {_where(each.conversation_id)} · {moment(each.ended_s)}")


def _rules(content: HomeContent, names: dict[str, str]) -> Iterator[Block]:
    for each in content.rules[:_MOST_RULES]:
        name = escape(names.get(each.instance, each.instance))
        place = _link(content.url, each.conversation_id, "this conversation") if each.conversation_id else "everywhere"
        block = section(f"`{escape(each.tool)}` by {name}, {'in ' if each.conversation_id else ''}{place}")
        yield {**block, "accessory": button(HOME_REVOKE, "Revoke", each.id)}


def _schedules(content: HomeContent) -> Iterator[Block]:
    for each in content.schedules[:_MOST_SCHEDULES]:
        place = ThreadAddress.parse(each.place)
        where = _where(each.place) if place.thread_ts is None else _link(content.url, each.place, "in a thread")
        following = f"next: {moment(each.due_s)}" if each.due_s and each.cron else ""
        state = f"suspended: {escape(each.suspended)}" if each.suspended else following
        parts = f"⏰ {escape(one_line(each.text, _TITLE_CHARS))}", where, escape(each.when), state
        block = section(" · ".join(filter(None, parts)))
        yield {**block, "accessory": button(HOME_UNSCHEDULE, "Revoke", each.id)}


def _usage(content: HomeContent) -> Iterator[Block]:
    """Yield the usage of this day and month, in UTC."""
    now = datetime.fromtimestamp(content.now_s, UTC)
    day = now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    month = datetime.fromtimestamp(day, UTC).replace(day=1).timestamp()
    if content.ended:
        lines = [f"*{name}:* {_sum(content.ended, since)}" for name, since in (("Today", day), ("This month", month))]
        yield section("\n".join(lines))


def _sum(ended: Iterable[EndedRun], since_s: float) -> str:
    runs = [each for each in ended if each.ended_s >= since_s]
    return f"{counted(len(runs), 'run')}, {texts.usage(Usage.sum_of([each.usage for each in runs]))}"


def _instance(instance: Instance) -> Block:
    persona = f"{instance.persona.emoji} *{escape(instance.persona.name)}*"
    text = f" {escape(instance.description)}" if instance.description else ""
    tools = one_line(", ".join(instance.tools), _TOOLS_CHARS)
    call = f"`{escape(instance.name)}, …`"
    return section(f"{persona}{text}\nBegin a message with {call}{f' · can use: {escape(tools)}' if tools else ''}")


def _where(conversation_id: str) -> str:
    channel = ThreadAddress.parse(conversation_id).channel
    return "direct message" if is_direct(channel) else f"<#{channel}>"


def _link(url: str, conversation_id: str, text: str) -> str:
    place = ThreadAddress.parse(conversation_id)
    label = escape(one_line(text, _TITLE_CHARS)).replace("|", "¦") or "…"
    message = "" if place.thread_ts is None else f"/p{place.thread_ts.replace('.', '')}"
    return f"<{url}archives/{place.channel}{message}|{label}>"
