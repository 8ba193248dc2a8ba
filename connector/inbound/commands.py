"""Answer commands: in private, by a fact about the thread, or by an entry for the owner of the conversation."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from connector import texts
from connector.commands import VERBS, InvalidCommand, ThreadCommand, help_text, slash_help
from connector.events import (
    COMMENT,
    FEEDBACK,
    FORK,
    RERUN,
    RatingClick,
    StopRequest,
    is_direct,
    plain_text,
    worker_of_run,
)
from connector.formatting.content import Content, button, counted, modal, moment, one_line, section, text_field
from connector.formatting.inline import escape
from connector.inbound.access_policy import MAX_NAMES, LatestEntries
from connector.protocols import AGAIN, InboxEntry, LogPlace, Refused, Usage
from connector.records import LogCommand, RunRecord, UnreadableEntry, active_run, parse_run_record
from connector.runs.request_view import waiting_line
from connector.slack_api.client import answer_of, key_of
from connector.slack_api.errors import error_boundary
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from connector.events import ReactionAdded, Shortcut, SlackMessage, SlashCommand, ThreadAddress
    from connector.inbound.admission import Admitter
    from connector.protocols import ConversationHistory, ThreadFacts
    from connector.runs.workspace import WorkspaceContext

_PROMPT_CHARS = 60
_MOST_WORKERS = 20
# Reactions to an answer that rate it (Slack adds skin tones to their names), and the one that runs its message again.
_REWARDS = {"+1": 1, "-1": -1}
ANSWER_REACTIONS = frozenset({"repeat", *_REWARDS})
_COMMENT_CHARS = 2000
NO_APPROVALS = "Nothing waits for an answer here."


class Commands:
    """Carries out the commands of people.

    Args:
        step_of: the current step of the run in a conversation; blank: unknown to this process.
    """

    def __init__(
        self,
        workspace: WorkspaceContext,
        admitter: Admitter,
        step_of: Callable[[str], str],
    ) -> None:
        self._workspace = workspace
        self._admitter = admitter
        self._step_of = step_of
        # Commands that were answered in private: Slack delivers a mention as two events.
        self._answered: LatestEntries[None] = LatestEntries(MAX_NAMES)

    async def admit(self, message: SlackMessage, command: ThreadCommand | InvalidCommand, thread: ThreadFacts) -> None:
        """Carry out a command in a thread, or store it for the owner of the conversation."""
        if isinstance(command, InvalidCommand):
            self.answer(message, command.answer)
            return
        if VERBS[command.kind].effect == "private":
            place = message.place
            self._workspace.background.spawn(self._answer_by(message, command, place, thread))
        elif answer := await self._admitter.commands.store(message, command, thread):
            self.answer(message, answer)

    async def status(self, channel: str, conversation_id: str | None = None) -> str:
        """Return the active runs of a channel (`team:channel`), or of one conversation, in Slack's markup."""
        found = await self._workspace.runs.at_work(channel)
        lines = [
            line
            for name, (run, entries) in found.items()
            if (conversation_id is None or _is_in(name, conversation_id)) and (line := self._line(name, run, entries))
        ]
        return "\n".join(lines) or texts.NOTHING_RUNS

    def _line(self, conversation_id: str, run: object, entries: tuple[InboxEntry, ...]) -> str:
        try:
            record = parse_run_record(run if isinstance(run, dict) else {})
        except UnreadableEntry:
            return ""
        messages = [each for each in entries if each.kind == "message"]
        if not isinstance(record, RunRecord) or record.is_over:
            return f"⏳ {counted(len(messages), 'message')} will be read in a moment." if messages else ""
        waiting = sum(each.id != record.first.id for each in messages)
        step = self._step_of(conversation_id)
        clock = moment(float(record.first.written_s), "{time}")
        prompt = escape(one_line(record.first.prompt, _PROMPT_CHARS))
        parts = (
            f"⚙️ “{prompt}” of <@{record.first.owner}> runs since {clock}.",
            f"Now: {escape(step.removeprefix('⚙️ '))}" if step else "",
            f"{counted(waiting, 'message')} waiting." if waiting else "",
        )
        return " ".join(filter(None, parts))

    async def approvals(self, user: str, channel: str, conversation_id: str | None = None) -> str:
        """Return the pending requests of a channel (`team:channel`), or of a thread and its workers, in Slack's markup.

        Private ones are only for the user that is asked.
        """
        lines: list[str] = []
        for name, (run, _) in (await self._workspace.runs.at_work(channel)).items():
            record = active_run(run)
            if record is not None and (conversation_id is None or _is_in(name, conversation_id)):
                waiting = [each for each in record.requests.values() if each.answer is None]
                waiting = [each for each in waiting if each.request.person in {"", user}]
                lines += [waiting_line(each, record.first.owner) for each in waiting]
        return "\n".join(lines) or NO_APPROVALS

    async def cost(self, instance: str, conversation_id: str) -> str:
        """Return the tokens and the cost of a conversation and its latest run."""
        if self._workspace.history is None:
            return texts.NO_HISTORY
        try:
            whole, latest = await self._workspace.history.usage(instance, conversation_id)
        except Refused as e:
            return str(e)
        found = f"This conversation: {texts.usage(whole)}. Its latest run: {texts.usage(latest)}."
        workers = await self._usage_of_workers(conversation_id)
        return f"{found} Its workers: {texts.usage(workers)}." if workers is not None else found

    async def _usage_of_workers(self, conversation_id: str) -> Usage | None:
        """Return the usage of the workers of a thread; `None`: it has none."""
        history, workers = self._workspace.history, self._workspace.workers
        if history is None or workers is None or not (found := await workers.of_thread(conversation_id)):
            return None
        used = []
        for each in found:
            with suppress(Refused):
                used.append((await history.usage(each.instance, each.conversation_id))[0])
        return Usage.sum_of(used)

    async def on_slash(self, command: SlashCommand) -> str:  # noqa: PLR0911 - a case for each verb
        """Carry out a slash command, and return its answer."""
        verb, _, text = command.text.partition(" ")
        place, text = command.place, text.strip()
        channel = f"{place.team}:{place.channel}"
        match verb.lower():
            case "status":
                return await self.status(channel)
            case "stop":
                stop = StopRequest(command.id, command.user, command.at)
                return escape(await self._admitter.stop_in_dm(stop, place))
            case "approvals":
                return await self.approvals(command.user, channel)
            case "cost":
                found = await self._workspace.runs.at_work(channel)
                agents = {name: (await self._workspace.runs.thread_of(name)).agent for name in found}
                costs = [await self.cost(agent, name) for name, agent in agents.items() if agent is not None]
                return "\n".join(costs) or "Nothing runs here. Write `!cost` in a thread."
            case "new" if text:
                prompt = plain_text(text, self._workspace.router.bot_user)
                instance, _ = await self._workspace.router.resolve(place.message(command.at, text))
                begin = LogCommand("begin", command.user, command.at, instance.name, prompt)
                conversation_id = place.of_channel.conversation_id
                await self._workspace.runs.admit(conversation_id, InboxEntry(command.id, "command", asdict(begin)))
                return "💬 I begin a thread with that."
            case "schedule" if self._workspace.schedules is not None:
                instance, _ = await self._workspace.router.resolve(place.message(command.at))
                schedules, text = self._workspace.schedules, plain_text(text, self._workspace.router.bot_user)
                answer = await schedules.carry_out(place, command.user, instance.name, text, command.id)
                if self._workspace.home is not None:
                    self._workspace.home.changed(command.user)
                return escape(answer)
            case known if known in VERBS and known != "help":
                return f"Write `!{known}` in the thread that you mean."
        return slash_help(command.name)

    async def on_shortcut(self, shortcut: Shortcut) -> None:
        """Store a confirmed rerun or a fork; let the user confirm another rerun."""
        place, thread = await self._conversation(shortcut.place)
        message_id = f"{place.team}:{place.channel}:{shortcut.ts}"
        history = self._workspace.history
        if thread.agent is None or history is None:
            self.whisper(place, shortcut.user, texts.NO_AGENT_HERE)
        elif refusal := self._admitter.commands.refusal(shortcut.user, shortcut.at, place, thread):
            self.whisper(place, shortcut.user, refusal)
        elif shortcut.kind == FORK:
            text = plain_text(shortcut.text, self._workspace.router.bot_user)
            prompt_id = "" if shortcut.is_ours else message_id
            command = LogCommand(FORK, shortcut.user, shortcut.at, thread.agent, text, shortcut.ts, prompt_id)
            await self._admit(f"{message_id}:{FORK}:{shortcut.at}", place, command)
        elif shortcut.is_confirmed:
            command = LogCommand(RERUN, shortcut.user, shortcut.at, thread.agent, target=shortcut.ts)
            await self._admit(f"{message_id}{AGAIN}{shortcut.at}", place, command)
        else:
            self._workspace.background.spawn(self._confirm(shortcut, place, thread.agent, history))

    async def on_answer(self, found: dict[str, Any], where: ThreadAddress, reaction: ReactionAdded) -> None:
        """Rate an answer, or run its message again."""
        answer, worker = answer_of(found), worker_of_run(key_of(found).partition(":")[0])
        reward = _REWARDS.get(reaction.name.partition("::")[0])
        if answer is not None and reward is not None:
            user, ts, at = reaction.user, reaction.ts, reaction.event_ts
            await self.rate(RatingClick(reaction.id, replace(where, worker=worker), user, ts, reward, *answer, at))
        place, thread = await self._conversation(where)
        if answer is None or reward is not None or thread.agent is None:
            return
        message_id = answer.prompt_id.partition(AGAIN)[0]
        refusal = self._admitter.commands.refusal(reaction.user, reaction.event_ts, place, thread)
        refusal = refusal or (texts.no_rerun_of_worker(worker) if worker else "")
        # The message of a schedule or a trigger in a thread is not in Slack.
        refusal = refusal or (texts.ASK_AGAIN if "::" in message_id else "")
        if refusal:
            self.whisper(place, reaction.user, refusal)
            return
        target = message_id.rpartition(":")[2]
        command = LogCommand(RERUN, reaction.user, reaction.event_ts, answer.instance, target=target)
        await self._admit(f"{message_id}{AGAIN}{reaction.event_ts}", place, command)

    async def rate(self, rating: RatingClick) -> None:
        """Store a rating; ask for a comment to a bad one by a button."""
        place, thread = await self._conversation(rating.place)
        if thread.agent is None:
            return
        rating = replace(rating, place=place)
        if rating.comment or not rating.is_form:
            answer = (rating.ts, rating.prompt_id, rating.part, rating.reward)
            command = LogCommand("rate", rating.user, rating.at, rating.instance, rating.comment, *answer)
            await self._admit(rating.id, place, command)
        if rating.trigger and rating.reward < 0:
            arguments = {"trigger_id": rating.trigger, "view": json.dumps(_comment_form(rating))}
            background = self._workspace.background
            background.spawn(background.client.call("views.open", arguments, CallSlot(Priority.PERSON)))

    async def _admit(self, entry_id: str, place: ThreadAddress, command: LogCommand) -> None:
        entry = InboxEntry(entry_id, "command", asdict(command))
        await self._workspace.runs.admit(place.conversation_id, entry)

    async def _conversation(self, place: ThreadAddress) -> tuple[ThreadAddress, ThreadFacts]:
        """Return the conversation at a place; a thread of direct messages may be part of the channel's."""
        thread = await self._workspace.runs.thread_of(place.conversation_id)
        if thread.agent is None and is_direct(place.channel):
            place = replace(place, thread_ts=None)
            thread = await self._workspace.runs.thread_of(place.conversation_id)
        return place, thread

    async def _confirm(
        self, shortcut: Shortcut, place: ThreadAddress, agent: str, history: ConversationHistory
    ) -> None:
        """Show the user how much a rerun leaves behind, with a button that confirms it."""
        shortcut = replace(shortcut, place=place)
        message_id = f"{place.team}:{place.channel}:{shortcut.ts}"
        try:
            left = await history.since(agent, place.conversation_id, LogPlace(message_id))
        except Refused as e:
            self.whisper(place, shortcut.user, str(e))
            return
        text = escape(texts.confirm_rerun(left))
        confirms = button(RERUN, "Run again", shortcut.value, style="danger")
        self.whisper(place, shortcut.user, text, section(text), {"type": "actions", "elements": [confirms]})

    async def _answer_by(
        self, message: SlackMessage, command: ThreadCommand, place: ThreadAddress, thread: ThreadFacts
    ) -> None:
        conversation_id = place.conversation_id
        with error_boundary("command.failed", conversation=conversation_id):
            match command.kind:
                case "help":
                    self.answer(message, help_text())
                case "status":
                    self.answer(message, await self.status(f"{place.team}:{place.channel}", conversation_id))
                case "cost":
                    agent = thread.agent or self._workspace.router.names()[0]
                    self.answer(message, await self.cost(agent, conversation_id))
                case "workers":
                    self.answer(message, await self.workers(conversation_id))
                case "approvals":
                    self.answer(
                        message, await self.approvals(message.user, f"{place.team}:{place.channel}", conversation_id)
                    )

    async def workers(self, conversation_id: str) -> str:
        """Return the workers of a thread, in Slack's markup, the latest first."""
        workers = self._workspace.workers
        found = await workers.of_thread(conversation_id) if workers is not None else ()
        now_s = self._workspace.background.now_s()
        return "\n".join(texts.worker_line(each, now_s) for each in found[:_MOST_WORKERS]) or texts.NO_WORKERS

    def answer(self, message: SlackMessage, text: str) -> None:
        """Answer the author of a message in private, once."""
        key = f"{message.id}:{message.text}"
        if key not in self._answered:
            self._answered[key] = None
            self.whisper(message, message.user, text)

    def whisper(self, where: SlackMessage | ThreadAddress, user: str, text: str, *blocks: dict[str, Any]) -> None:
        """Post a text in Slack's markup that only this user sees; `blocks` show it with buttons."""
        background = self._workspace.background
        background.spawn(background.client.post_ephemeral(where, user, Content(text, blocks)))


def _comment_form(rating: RatingClick) -> dict[str, Any]:
    field = text_field(COMMENT, "Which part was wrong?", _COMMENT_CHARS) | {"optional": True}
    return modal(FEEDBACK, rating.metadata, "Feedback", [field], submit="Send", close="Skip")


def _is_in(conversation_id: str, thread: str) -> bool:
    """Return whether a conversation is that of a thread, or of one of its workers."""
    return conversation_id == thread or conversation_id.startswith(f"{thread}:")
