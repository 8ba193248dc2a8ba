"""Parse Slack's events into messages, edits, deletions, reactions, stop requests and views of the app."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator

from connector.message_text import SlackFile, read, read_for_edits
from connector.protocols import ALLOW, DENY

if TYPE_CHECKING:
    from collections.abc import Mapping

# Subtypes of posts: none, a shared file, a reply "also sent to the channel", `/me …`, and an app's under another name.
_SUBTYPES_OF_POSTS = (None, "file_share", "thread_broadcast", "me_message", "bot_message")
_ENTITY = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
# Limit on users looked up for the mentions of one message.
MOST_MENTIONED = 20
# Ids and times become names in stores and paths, so both are checked and bounded.
_ID = re.compile(r"[A-Za-z0-9]{1,40}")
_TS = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,9})?")
_STOP_WORDS = frozenset({"stop", "halt", "cancel", "abort"})
# Slack's own bot user, which posts reminders and automatic replies.
_SLACKBOT = "USLACKBOT"
STOP_ACTION = "stop"
# The buttons of the Home tab, apart from those of requests.
HOME_STOP, HOME_REVOKE, HOME_UNSCHEDULE = "home_stop", "home_revoke", "home_unschedule"
HOME_ACTIONS = (HOME_STOP, HOME_REVOKE, HOME_UNSCHEDULE)
# The message shortcuts; the second one is also the action that confirms it.
FORK, RERUN = "fork", "rerun"
# Those that open a form, which has the same name: ask about the message, or summarise its thread.
ASK, SUMMARISE = "ask", "summarise"
_TRIGGER_CHARS = 24
# The buttons that rate an answer; the form for a comment, and its field.
FEEDBACK, COMMENT = "feedback", "feedback_comment"
_FORM_ID = ":comment"
ALLOW_ACTION, DENY_ACTION = "steer_allow", "steer_deny"
# The buttons and menus of a request: one of its options; a menu of options, and the button that sends them; forms for
# the reason of a denial and for own words; a scope for which it is allowed for good. Their value is its address.
CHOOSE_ACTIONS = tuple(f"request_choose_{place}" for place in range(5))
OPTIONS_ACTION, SEND_ACTION = "request_options", "request_send"
REASON_ACTION, WRITE_ACTION, ALWAYS_ACTION = "request_reason", "request_write", "request_always"
REQUEST_ACTIONS = (*CHOOSE_ACTIONS, SEND_ACTION, REASON_ACTION, WRITE_ACTION, ALWAYS_ACTION)
# The form for own words, its block, and its field.
REQUEST_FORM, REQUEST_TEXT = "request_form", "request_text"
# The end of the ids of stops by a word that another entry carries: an edit, or a stop word outside of the thread.
BY_WORD = ":stop"
# The user of stop requests by an operator of the service; no id of Slack.
OPERATOR = "operator"
# The user of stops at the end of the time of a run; no id of Slack.
TIME_LIMIT = "time-limit"


_WORKER_CHARS = 7
# The id of a worker; those of its runs end with it.
WORKER_ID = re.compile(r"w[0-9a-f]{6}")


def worker_of_run(run_id: str) -> str:
    """Return the id of the worker to which a run belongs; blank: none."""
    found = run_id[-_WORKER_CHARS:]
    return found if WORKER_ID.fullmatch(found) else ""


def checked_ts(value: object) -> str:
    """Return the value if it is a valid ts, which `float` can parse; otherwise raise ValueError."""
    if not isinstance(value, str) or _TS.fullmatch(value) is None:
        raise ValueError(f"{value!r} is not a ts")
    return value


Ts = Annotated[str, AfterValidator(checked_ts)]


@dataclass(frozen=True, slots=True)
class ThreadAddress:
    """The place of a conversation: a thread, or a whole direct message channel (`thread_ts` is `None`).

    `worker`: id of the worker whose conversation it is, which posts in the thread; blank: it is the thread's own.
    """

    team: str
    channel: str
    thread_ts: str | None
    worker: str = ""

    @classmethod
    def of(cls, team: str, channel: str, ts: str, thread_ts: str | None = None, *, dm_threads: bool) -> Self:
        """Return the conversation of a message: its thread, or the one that it begins.

        Without `dm_threads` a top-level direct message begins none: the whole channel is one conversation.
        """
        is_of_channel = is_direct(channel) and not dm_threads
        return cls(team, channel, thread_ts or (None if is_of_channel else ts))

    @classmethod
    def parse(cls, conversation_id: str) -> Self:
        """Return the place of the conversation with this id.

        Raises:
            ValueError: it is no id of the form `team:channel:thread_ts` or `team:channel:dm`. That of a worker has
                `:worker` at its end.
        """
        match conversation_id.split(":"):
            case [team, channel, thread, *worker] if len(worker) < 2:
                thread_ts = None if thread == "dm" else checked_ts(thread)
                return cls(_id(team), _id(channel), thread_ts, *map(_id, worker))
        raise ValueError(f"{conversation_id!r} has neither three parts nor four")

    @property
    def conversation_id(self) -> str:
        thread = f"{self.team}:{self.channel}:{self.thread_ts or 'dm'}"
        return f"{thread}:{self.worker}" if self.worker else thread

    @property
    def of_channel(self) -> ThreadAddress:
        """The conversation of the whole direct message channel."""
        return replace(self, thread_ts=None, worker="")

    @property
    def thread(self) -> ThreadAddress:
        """The thread's own conversation."""
        return replace(self, worker="")

    def message(self, ts: str, text: str = "") -> SlackMessage:
        """Return a placeholder message without an author, which gives a notice or a note this place."""
        thread_ts, direct = self.thread_ts, is_direct(self.channel)
        return SlackMessage(self.team, self.channel, ts, thread_ts, "", text, (), direct=direct, worker=self.worker)


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """A post by a person or another app, in Slack's markup.

    Args:
        user: id of the author; of an app without a user, `bot`.
        text: written by the author; only mentions here address someone.
        files: its files.
        quoted: forwarded messages and code snippets in it, marked as quotes.
        unreadable: its parts without text, in words for people.
        dm_threads: whether a top-level direct message began a thread when it arrived; later settings do not move it.
        bot: id of the bot that posted it, `B…`, and `app` its name; both blank: a person did.
        worker: as of `ThreadAddress`.
        key: identity of a message that is not in Slack, such as the order for a worker; blank: it is posted.
        is_shared: whether its channel is shared with another workspace.
    """

    team: str
    channel: str
    ts: Ts
    thread_ts: str | None
    user: str
    text: str
    files: tuple[SlackFile, ...]
    direct: bool
    quoted: str = ""
    unreadable: tuple[str, ...] = ()
    dm_threads: bool = False
    bot: str = ""
    app: str = ""
    worker: str = ""
    key: str = ""
    is_shared: bool = False

    @property
    def id(self) -> str:
        return f"{self.team}:{self.channel}::{self.key}" if self.key else f"{self.team}:{self.channel}:{self.ts}"

    @property
    def file_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.files)

    @property
    def attached(self) -> str:
        """What follows its text: its quotes, or a mark for its files; blank: nothing."""
        return self.quoted or ("…" if self.files else "")

    @property
    def begins_dm_thread(self) -> bool:
        return self.direct and self.dm_threads and self.thread_ts is None

    @property
    def place(self) -> ThreadAddress:
        place = ThreadAddress.of(self.team, self.channel, self.ts, self.thread_ts, dm_threads=self.dm_threads)
        return replace(place, worker=self.worker) if self.worker else place

    def mentions(self, user: str) -> bool:
        return f"<@{user}>" in self.text or f"<@{user}|" in self.text

    def mentions_anyone(self) -> bool:
        return "<@" in self.text

    @property
    def mentioned(self) -> list[str]:
        """The ids of the first `MOST_MENTIONED` mentioned users, those in quotes last.

        A typed `<` arrives as `&lt;`, so that only Slack's own entities match.
        """
        found: dict[str, None] = {}
        for mention in _MENTION.finditer(f"{self.text}\n{self.quoted}"):
            found[mention[1]] = None
            if len(found) == MOST_MENTIONED:
                break
        return list(found)


@dataclass(frozen=True, slots=True)
class MessageEdit:
    """A person edited a message; `message` is the new version, `before` the old one."""

    message: SlackMessage
    before: SlackMessage
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:edit:{self.event_ts}"


@dataclass(frozen=True, slots=True)
class MessageDeletion:
    """A person deleted a message; `message` is its last version."""

    message: SlackMessage
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:deleted"


@dataclass(frozen=True, slots=True)
class ReactionAdded:
    """A person added an emoji to a message; `author` wrote the message, if Slack names them."""

    user: str
    name: str
    channel: str
    ts: str
    event_ts: str
    author: str | None = None

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.ts}:{self.user}:{self.name}:{self.event_ts}"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A person asks to stop a run: by a stop word, a reaction, or a button.

    Args:
        at: time of the request, as a ts; it does not stop runs that began later.
        ts: the message that carries the request; it stops only the run that has this message as its status message or
            its first message.
        run: id of the run to stop, if known.
        message: the stop word, if the request is a message; it is answered even if nothing runs.
        is_own: whether the user wrote the message that carries the request.
        agent: name of the sub-agents to stop; blank: the run.
    """

    id: str
    user: str
    at: Ts
    ts: str | None = None
    run: str | None = None
    message: SlackMessage | None = None
    is_own: bool = False
    agent: str = ""

    @property
    def door(self) -> str:
        """How the request was made: by an operator, a time limit, a word, a reaction or a button."""
        if self.user in {OPERATOR, TIME_LIMIT}:
            return self.user
        if self.message is not None or self.id.endswith(BY_WORD):
            return "word"
        return "button" if self.ts is None else "reaction"


@dataclass(frozen=True, slots=True)
class Consent:
    """A click on a button of the question whether a person may steer a run.

    Args:
        id: identity of the click.
        run: the run's id.
        user: asked to steer; `by` clicked.
        allows: whether `by` lets them.
        ts: the message with the buttons.
    """

    id: str
    run: str
    user: str
    by: str
    allows: bool
    ts: Ts


@dataclass(frozen=True, slots=True)
class RequestAddress:
    """The address of a request of a run: the value of its buttons."""

    place: ThreadAddress
    run: str
    key: str

    @classmethod
    def parse(cls, value: str) -> Self:
        """Return the address in the value of a button.

        Raises:
            ValueError: it is none.
        """
        conversation_id, run, key = value.rsplit(":", 2)
        return cls(ThreadAddress.parse(conversation_id), _id(run), _id(key))

    def __str__(self) -> str:
        return f"{self.place.conversation_id}:{self.run}:{self.key}"


@dataclass(frozen=True, slots=True)
class RequestClick:
    """A person's answer to a request: a click, or a form.

    Args:
        id: identity of the click.
        run: id of the run that asks.
        key: of the request.
        by: the user.
        chosen: places of the chosen options.
        text: the person's own words.
        always: scope for which the first option is chosen for good; blank: only once.
        at: time of the click, as a ts.
        ts: the message with the buttons; blank: the click was elsewhere.
        response_url: where the message that only this person sees can be replaced; blank: others see it, too.
        admitted_s: when it was stored, in seconds since the epoch; 0: it is not stored yet.
    """

    id: str
    run: str
    key: str
    by: str
    chosen: tuple[int, ...]
    at: Ts
    text: str = ""
    always: str = ""
    ts: Ts | Literal[""] = ""
    response_url: str = ""
    admitted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestForm:
    """A person asks for the form in which they write an answer to a request.

    Args:
        chosen: places of the options that the form answers with.
        trigger: lets the app open a form within three seconds.
        at, ts: as of `RequestClick`.
    """

    address: RequestAddress
    by: str
    chosen: tuple[int, ...]
    trigger: str
    at: str
    ts: str

    @property
    def metadata(self) -> str:
        """The data that the form sends back."""
        return " ".join([str(self.address), self.ts, self.at, *map(str, self.chosen)])


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command, outside of threads. `id` is its identity, `at` the time of its arrival, as a ts."""

    id: str
    place: ThreadAddress
    user: str
    name: str
    text: str
    at: Ts


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A person chose an action on a message, or confirmed one.

    Args:
        kind: `fork` or `rerun`.
        place: the conversation of the message.
        ts: the message; `is_ours`: the bot may have posted it.
        at: time of the choice, as a ts.
        is_confirmed: whether the person has seen how much it leaves behind.
        text: the text of the message.
    """

    kind: str
    place: ThreadAddress
    user: str
    ts: Ts
    at: Ts
    is_ours: bool = False
    is_confirmed: bool = False
    text: str = ""

    @property
    def value(self) -> str:
        """The value of the button that confirms it."""
        return f"{self.place.conversation_id} {self.ts} {self.at}"


@dataclass(frozen=True, slots=True)
class RatingClick:
    """A person rates an answer by a button or a reaction, or comments their rating in a form.

    Args:
        id: identity of the click.
        place: the conversation of the answer; `ts`: the message that shows it.
        instance, prompt_id, part: its place in the logs.
        at: time of the click, as a ts.
        trigger: lets the app open a form within three seconds; blank: none.
    """

    id: str
    place: ThreadAddress
    user: str
    ts: Ts
    reward: int
    instance: str
    prompt_id: str
    part: int
    at: Ts
    comment: str = ""
    trigger: str = ""

    @property
    def is_form(self) -> bool:
        return self.id.endswith(_FORM_ID)

    @property
    def metadata(self) -> str:
        """The data that the form for a comment sends back."""
        place = self.place.conversation_id
        return f"{place} {self.ts} {self.at} {self.reward} {self.instance} {self.prompt_id} {self.part}"


@dataclass(frozen=True, slots=True)
class HomeOpened:
    """A person opened the Home tab of the app; `channel`: their direct messages with it."""

    user: str
    channel: str


@dataclass(frozen=True, slots=True)
class HomeClick:
    """A click on a button of the Home tab: it stops a run, or revokes a rule or a schedule (their ids).

    `place` is the conversation of the run; without a `stop` it is nothing.
    """

    user: str
    place: ThreadAddress | None = None
    stop: StopRequest | None = None
    rule: str = ""
    schedule: str = ""


@dataclass(frozen=True, slots=True)
class AppView:
    """A person opened the direct messages of the app, or another channel next to them.

    Args:
        channel: the direct message channel; `thread_ts`: the thread that is open there, if the event names one.
        looks_at: the channel that the person looks at; blank: none. `None`: the event does not tell.
        is_opened: whether the direct messages were opened.
        at: time of the event, as a ts.
    """

    user: str
    channel: str
    thread_ts: str | None
    looks_at: str | None
    is_opened: bool
    at: Ts


def message_of(event: dict[str, Any], team: str, *, dm_threads: bool = True) -> SlackMessage | None:
    """Parse a message event; `None` if it is not a new post by a person, or in a channel by an app.

    Like all parsers here, it raises AttributeError, KeyError, TypeError or ValueError on a malformed event.
    """
    bot = event.get("bot_id") or (event.get("bot_profile") or {}).get("id")
    user = event.get("user") or bot
    subtype = event.get("subtype")
    if subtype not in _SUBTYPES_OF_POSTS or not user or user == _SLACKBOT or (subtype == "bot_message" and not bot):
        return None
    content, channel = read(event), _id(event["channel"])
    if bot and is_direct(channel):
        return None
    if not (content.own.strip() or content.quoted or content.files or content.unreadable):
        return None
    return SlackMessage(
        team=team,
        channel=channel,
        ts=checked_ts(event["ts"]),
        thread_ts=thread_of(event),
        user=_id(user),
        text=content.own,
        files=content.files,
        direct=is_direct(channel),
        quoted=content.quoted,
        unreadable=content.unreadable,
        dm_threads=dm_threads,
        bot=_id(bot) if bot else "",
        app=content.app if bot else "",
    )


def is_direct(channel: str) -> bool:
    """Return whether a channel is the direct messages of a person and the bot."""
    return channel.startswith("D")


def thread_of(message: dict[str, Any]) -> str | None:
    """Return the thread that a message replies to; `None` for a top-level message, even if it has replies."""
    thread_ts = message.get("thread_ts")
    return None if thread_ts is None or thread_ts == message["ts"] else checked_ts(thread_ts)


def moment_of(event: dict[str, Any]) -> str:
    """Return the time of an event, as a ts."""
    return checked_ts(event.get("event_ts") or event["ts"])


def edited_ts_of(found: Mapping[str, Any]) -> str:
    """Return the ts of the last edit of a message from Slack's history; blank: never edited."""
    edited = found.get("edited")
    ts = edited.get("ts") if isinstance(edited, dict) else None
    return ts if isinstance(ts, str) and _TS.fullmatch(ts) else ""


def checked_id(value: object) -> str:
    """Return the value if it has the form of an id of Slack; otherwise raise ValueError."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"{value!r} is not an id")
    return value


_id = checked_id


def home_of(message: dict[str, Any]) -> str | None:
    """Return the workspace (`T…`) or organisation (`E…`) of a message's author; `None`: Slack names neither.

    `team` is tried last: in an organisation it may be the workspace that receives the message.
    """
    homes = (message.get(name) for name in ("user_team", "source_team", "team"))
    return next((home for home in homes if isinstance(home, str) and home.startswith(("T", "E"))), None)


def edit_of(event: dict[str, Any], team: str, *, dm_threads: bool = True) -> MessageEdit | None:
    """Parse an edit; `None` if text and quotes of the author are unchanged: Slack edits messages to unfurl links."""
    now, before = event.get("message") or {}, event.get("previous_message") or {}
    message = _inside(event, now, team, dm_threads)
    if message is None or read_for_edits(now) == read_for_edits(before):
        return None
    return MessageEdit(message, _inside(event, before, team, dm_threads) or message, moment_of(event))


def deletion_of(event: dict[str, Any], team: str, *, dm_threads: bool = True) -> MessageDeletion | None:
    """Parse a deletion; `None` if the event is not the deletion of a post.

    A deleted message with replies leaves a tombstone, which Slack reports as an edit.
    """
    is_tombstone = (event.get("message") or {}).get("subtype") == "tombstone"
    if event["subtype"] != "message_deleted" and not is_tombstone:
        return None
    message = _inside(event, event.get("previous_message") or {}, team, dm_threads)
    return MessageDeletion(message, moment_of(event)) if message else None


def _inside(event: dict[str, Any], message: dict[str, Any], team: str, dm_threads: bool) -> SlackMessage | None:
    """Parse the message inside an edit or a deletion; the event names its channel."""
    where: dict[str, Any] = {key: event[key] for key in ("channel", "channel_type") if key in event}
    return message_of({**message, **where}, team, dm_threads=dm_threads) if message.get("ts") else None


def reaction_of(event: dict[str, Any]) -> ReactionAdded | None:
    """Parse a reaction; `None` if it is not on a message."""
    item = event.get("item") or {}
    if item.get("type") != "message":
        return None
    return ReactionAdded(
        user=_id(event["user"]),
        name=str(event["reaction"]),
        channel=_id(item["channel"]),
        ts=checked_ts(item["ts"]),
        event_ts=checked_ts(event["event_ts"]),
        author=event.get("item_user"),
    )


def session_stop_of(event: dict[str, Any], team: str) -> tuple[ThreadAddress, StopRequest] | None:
    """Parse a press of Slack's own stop button; `None` if a required field is missing."""
    user, channel, at = event.get("user"), event.get("channel"), event.get("event_ts")
    if not user or not channel or not at:
        return None
    thread_ts = event.get("thread_ts")
    place = ThreadAddress(team, _id(channel), None if thread_ts is None else checked_ts(thread_ts))
    return place, StopRequest(f"{place.conversation_id}:{user}:session_stopped:{at}", _id(user), checked_ts(at))


def view_of(event: dict[str, Any]) -> AppView | None:
    """Parse an event about the direct messages of the app on a person's screen; `None`: another tab, or no person."""
    thread = event.get("assistant_thread")
    if isinstance(thread, dict):  # of apps with the older `assistant_view`
        user, channel, thread_ts = thread.get("user_id"), thread.get("channel_id"), thread.get("thread_ts")
        entities: list[Any] | None = [{"value": (thread.get("context") or {}).get("channel_id")}]
    elif event.get("tab", "messages") == "messages":
        user, channel, thread_ts = event.get("user"), event.get("channel"), None
        context = event.get("context")
        entities = None if context is None else context.get("entities") or []
    else:
        return None
    if not user or not channel:
        return None
    return AppView(
        _id(user),
        _id(channel),
        None if thread_ts is None else checked_ts(thread_ts),
        None if entities is None else next(filter(None, map(_channel_in, entities)), ""),
        event["type"] in {"app_home_opened", "assistant_thread_started"},
        moment_of(event),
    )


def home_opened_of(event: dict[str, Any]) -> HomeOpened | None:
    """Parse a visit of the Home tab; `None`: of another tab."""
    is_home = event["type"] == "app_home_opened" and event.get("tab") == "home"
    return HomeOpened(_id(event["user"]), _id(event["channel"])) if is_home else None


def home_click_of(body: dict[str, Any], team: str) -> HomeClick | None:
    """Parse a click on a button of the Home tab; `None`: another one."""
    action = next((each for each in body.get("actions") or () if each.get("action_id") in HOME_ACTIONS), None)
    if action is None:
        return None
    user, value, at = _id((body.get("user") or {}).get("id")), str(action.get("value")), checked_ts(action["action_ts"])
    if action["action_id"] == HOME_REVOKE:
        return HomeClick(user, rule=_id(value))
    if action["action_id"] == HOME_UNSCHEDULE:
        return HomeClick(user, schedule=_id(value))
    conversation_id, _, run = value.partition(" ")
    place = ThreadAddress.parse(conversation_id)
    if place.team != team:
        raise ValueError(f"{value!r} is a run of another workspace")
    return HomeClick(user, place, StopRequest(f"home:{user}:{_id(run)}:{at}", user, at, run=run))


def _channel_in(entity: dict[str, Any]) -> str:
    """Return the channel that an entity of a context names; blank: none, or direct messages."""
    value = entity.get("value")
    found = value.get("channel_id") if isinstance(value, dict) else value
    return found if isinstance(found, str) and found[:1] in {"C", "G"} and _ID.fullmatch(found) else ""


def clicked_of(body: dict[str, Any], team: str) -> tuple[ThreadAddress, StopRequest | Consent] | None:
    """Parse a click on a button of ours; `None` for another button."""
    ours = (STOP_ACTION, ALLOW_ACTION, DENY_ACTION)
    action = next((each for each in body.get("actions") or () if each.get("action_id") in ours), None)
    container, message = body.get("container") or {}, body.get("message") or {}
    channel = (body.get("channel") or {}).get("id") or container.get("channel_id")
    user, ts = (body.get("user") or {}).get("id"), message.get("ts") or container.get("message_ts")
    if action is None or not channel or not user or not ts or not action.get("action_ts"):
        return None
    thread_ts = thread_of({"ts": checked_ts(ts), "thread_ts": message.get("thread_ts") or container.get("thread_ts")})
    # The bot's posts begin no thread: at the top level of a direct message they are of the channel's conversation.
    place = ThreadAddress.of(team, _id(channel), ts, thread_ts, dm_threads=False)
    at, value = checked_ts(str(action["action_ts"])), str(action.get("value") or "")
    click_id = f"{channel}:{ts}:{user}:clicked:{at}"
    if action["action_id"] == STOP_ACTION:
        return place, StopRequest(click_id, _id(user), at, run=value or None)
    run, _, asked_for = value.partition(":")
    return place, Consent(click_id, run, _id(asked_for), _id(user), action["action_id"] == ALLOW_ACTION, ts)


def request_click_of(body: dict[str, Any], team: str) -> tuple[RequestAddress, RequestClick | RequestForm] | None:
    """Parse a click on a button or menu of a request, or a form; `None` if the payload is another one.

    A request is only answered from its own thread, or from the Home tab.
    """
    user = _id((body.get("user") or {}).get("id"))
    if body.get("type") == "view_submission":
        return _submitted(body["view"], user, team)
    action = next((each for each in body.get("actions") or () if each.get("action_id") in REQUEST_ACTIONS), None)
    if action is None:
        return None
    scope, value = "", str(action.get("value") or "")
    if action["action_id"] == ALWAYS_ACTION:
        scope, _, value = action["selected_option"]["value"].partition(" ")
    container, message = body.get("container") or {}, body.get("message") or {}
    address, is_view = RequestAddress.parse(value), container.get("type") == "view"
    channel = (body.get("channel") or {}).get("id") or container.get("channel_id")
    if address.place.team != team or (address.place.channel != channel and not is_view):
        raise ValueError(f"{value!r} is no request of this place")
    at = checked_ts(action["action_ts"])
    ts = "" if is_view else checked_ts(message.get("ts") or container["message_ts"])
    chosen: tuple[int, ...] = (ALLOW,)
    match action["action_id"]:
        case "request_reason" | "request_write" as kind:
            denial = (DENY,) if kind == REASON_ACTION else ()
            return address, RequestForm(address, user, denial, str(body.get("trigger_id") or ""), at, ts)
        case "request_send":
            chosen = tuple(sorted(_chosen_in((body.get("view") or body).get("state"), value)))
        case name if name in CHOOSE_ACTIONS:
            chosen = (CHOOSE_ACTIONS.index(name),)
    url = str(body.get("response_url") or "") if container.get("is_ephemeral") is True else ""
    where = container.get("view_id") if is_view else channel
    click_id = f"{where}:{ts}:{user}:{action['action_id']}:{address.run}:{address.key}:{at}"
    return address, RequestClick(click_id, address.run, address.key, user, chosen, at, "", scope, ts, url)


def _submitted(view: dict[str, Any], user: str, team: str) -> tuple[RequestAddress, RequestClick] | None:
    """Parse a form; its metadata are the request's address, its message, and the options that it answers with."""
    if view.get("callback_id") != REQUEST_FORM:
        return None
    value, ts, at, *places = str(view.get("private_metadata")).split(" ")
    address = RequestAddress.parse(value)
    if address.place.team != team:
        raise ValueError(f"{value!r} is a request of another workspace")
    text = view["state"]["values"][REQUEST_TEXT][REQUEST_TEXT].get("value") or ""
    if places not in ([], [str(DENY)]):  # a form denies, or answers in own words
        raise ValueError(f"{places!r} cannot be chosen in a form")
    chosen = tuple(map(int, places))
    click_id = f"{view['id']}:{user}:submitted"
    ts = checked_ts(ts) if ts else ""
    return address, RequestClick(click_id, address.run, address.key, user, chosen, checked_ts(at), str(text), ts=ts)


def _chosen_in(state: Any, address: str) -> set[int]:
    """Return the places of the options that are chosen in the menu of a request."""
    blocks = (state or {}).get("values") or {}
    found = (blocks.get(f"{OPTIONS_ACTION}:{address}") or {}).get(OPTIONS_ACTION) or {}
    options = found.get("selected_options") or filter(None, [found.get("selected_option")])
    return {int(option["value"]) for option in options}


def slash_of(body: dict[str, Any], team: str, now_s: float) -> SlashCommand:
    """Parse a slash command that arrives now, in seconds since the epoch."""
    place, user = ThreadAddress(team, _id(body["channel_id"]), None), _id(body["user_id"])
    trigger = sha256(str(body.get("trigger_id") or now_s).encode()).hexdigest()[:_TRIGGER_CHARS]
    name, text = str(body["command"]), str(body.get("text") or "")
    return SlashCommand(f"{team}:{place.channel}:slash:{trigger}", place, user, name, text.strip(), f"{now_s:.6f}")


def shortcut_of(body: dict[str, Any], team: str, *, dm_threads: bool) -> Shortcut | None:
    """Parse an action on a message, or a click that confirms one; `None`: neither."""
    user = _id((body.get("user") or {}).get("id"))
    if body.get("type") == "message_action" and body.get("callback_id") in {FORK, RERUN}:
        message, channel = body["message"], _id(body["channel"]["id"])
        ts = checked_ts(message["ts"])
        place = ThreadAddress.of(team, channel, ts, thread_of(message), dm_threads=dm_threads)
        text, is_ours = str(message.get("text") or ""), bool(message.get("bot_id"))
        return Shortcut(body["callback_id"], place, user, ts, checked_ts(str(body["action_ts"])), is_ours, text=text)
    action = next((each for each in body.get("actions") or () if each.get("action_id") == RERUN), None)
    if action is None:
        return None
    conversation_id, ts, at = str(action.get("value")).split(" ")
    place = ThreadAddress.parse(conversation_id)
    if (place.team, place.channel) != (team, (body.get("channel") or {}).get("id")):
        raise ValueError(f"{conversation_id!r} is not a conversation of this place")
    return Shortcut(RERUN, place, user, checked_ts(ts), checked_ts(at), is_confirmed=True)


def rating_of(body: dict[str, Any], team: str) -> RatingClick | None:
    """Parse a click that rates an answer, or a form with a comment; `None`: neither."""
    user = _id((body.get("user") or {}).get("id"))
    if body.get("type") == "view_submission":
        return _comment_of(body["view"], user, team) if body["view"].get("callback_id") == FEEDBACK else None
    action = next((each for each in body.get("actions") or () if each.get("action_id") == FEEDBACK), None)
    if action is None:
        return None
    reward, instance, prompt_id, part = str(action.get("value")).split(" ")
    container, message = body.get("container") or {}, body.get("message") or {}
    channel, ts = _id(body["channel"]["id"]), checked_ts(message.get("ts") or container["message_ts"])
    thread_ts = thread_of({"ts": ts, "thread_ts": message.get("thread_ts") or container.get("thread_ts")})
    place = ThreadAddress.of(team, channel, ts, thread_ts, dm_threads=False)
    at, trigger = checked_ts(str(action["action_ts"])), str(body.get("trigger_id") or "")
    click_id, sign = f"{channel}:{ts}:{user}:rated:{at}", 1 if int(reward) > 0 else -1
    return RatingClick(click_id, place, user, ts, sign, instance, prompt_id, int(part), at, trigger=trigger)


def _comment_of(view: dict[str, Any], user: str, team: str) -> RatingClick:
    """Parse a form with a comment. It repeats the rating that the person commented, a moment later."""
    conversation_id, ts, at, reward, *answer, part = str(view["private_metadata"]).split(" ")
    instance, prompt_id = answer
    place, comment = ThreadAddress.parse(conversation_id), view["state"]["values"][COMMENT][COMMENT].get("value")
    if place.team != team:
        raise ValueError(f"{conversation_id!r} is a conversation of another workspace")
    later = f"{float(checked_ts(at)) + 0.000001:.6f}"
    form_id, comment = f"{view['id']}:{user}{_FORM_ID}", str(comment or "").strip()
    return RatingClick(
        form_id, place, user, checked_ts(ts), int(reward), instance, prompt_id, int(part), later, comment
    )


def plain_text(text: str, bot: str) -> str:
    """Convert Slack's markup to text for the model: resolve entities, unescape, remove the mention of the bot."""

    def resolved(match: re.Match[str]) -> str:
        target, label = match[1], match[2]
        if target == f"@{bot}":
            return ""
        if target.startswith("!"):
            return "@" + target[1:].split("^")[0]
        if target[0] == "@":
            return target  # with the id: a label may have the name of another user
        if target[0] == "#":
            return f"#{label or target[1:]}"
        return f"{label} ({target})" if label and label != target else target

    # Slack escapes these three and nothing else.
    text = _ENTITY.sub(resolved, text).replace("&lt;", "<").replace("&gt;", ">")
    return text.replace("&amp;", "&").strip()


def is_stop_word(prompt: str) -> bool:
    """Return whether a prompt consists of a stop word such as `stop` or `!stop`."""
    return prompt.strip(" \t\n!.").lower() in _STOP_WORDS
