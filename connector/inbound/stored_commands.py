"""Store the commands that have an effect for all: on who answers in a thread, on its log, or as stops."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from connector import texts
from connector.commands import DEFAULT_MODEL, VERBS, ThreadCommand
from connector.events import StopRequest, is_direct
from connector.protocols import InboxEntry
from connector.records import LogCommand, ThreadNotice, stop_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.events import SlackMessage, ThreadAddress
    from connector.protocols import RunService, ThreadFacts, Workers
    from connector.routing import Router


# Words after `!stop` that name no agent: it stops the run.
_WHOLE_RUN = frozenset({"all", "everything", "it", "now", "please"})


class StoredCommands:
    """Stores each command once, by the id of its message, whichever process finds it, and however often.

    Args:
        now_s: seconds since the epoch.
    """

    def __init__(self, router: Router, runs: RunService, workers: Workers | None, now_s: Callable[[], float]) -> None:
        self._router = router
        self._runs = runs
        self._workers = workers
        self._now_s = now_s

    async def store(self, message: SlackMessage, command: ThreadCommand, thread: ThreadFacts) -> str:
        """Store a command of a person who takes part in the thread. Return the private answer to it; blank: none.

        A command that only gets a private answer is not stored.
        """
        verb = VERBS[command.kind]
        match verb.effect:
            case "thread":
                await self._store_choice(message, command, thread)
            case "stop" if command.kind == "stop" and command.argument.lower().rstrip("!.") in _WHOLE_RUN:
                stop = StopRequest(message.id, message.user, message.ts, message=message)
                await self._runs.admit(message.place.conversation_id, stop_entry(stop))
            case "stop":
                return await self._store_stop(message, command.argument)
            case "log":
                if thread.agent is None and not verb.begins:
                    return texts.NOTHING_RUNS
                if thread.agent and verb.is_steering:
                    refusal = self.refusal(message.user, message.ts, message.place, thread)
                    if refusal:
                        return refusal
                agent = thread.agent or (await self._router.resolve(message))[0].name
                stored = LogCommand(command.kind, message.user, message.ts, agent, command.argument)
                entry, facts = InboxEntry(message.id, "command", asdict(stored)), await self._router.facts_of(message)
                await self._runs.admit(message.place.conversation_id, entry, agent, facts)
        return ""

    def refusal(self, user: str, ts: str, place: ThreadAddress, thread: ThreadFacts) -> str:
        """Return why a user may not change the log of a thread, by the policy of `steer`; blank: they may."""
        steerers = self._router.participation(self._router.instance(thread.agent or ""), place.channel).steerers
        if is_direct(place.channel) or steerers == "anyone":
            return ""
        if steerers == "owner":
            return "" if user == thread.owner else texts.ONLY_OWNER
        return "" if thread.takes_part(user, ts) else texts.ONLY_PARTICIPANTS

    async def _store_choice(self, message: SlackMessage, command: ThreadCommand, thread: ThreadFacts) -> None:
        """Store who answers in the thread, with which model, or whether only mentions are answered."""
        notice, facts = ThreadNotice(message), await self._router.facts_of(message)
        agent = thread.agent or (await self._router.resolve(message))[0].name
        match command:
            case ThreadCommand("instance", name) if name.lower() in map(str.lower, self._router.names()):
                agent = self._router.instance(name).name
                notice = replace(notice, text=texts.handed_over(self._router.instance(name).persona.name))
            case ThreadCommand("instance"):
                notice = replace(notice, text=texts.no_instance(self._router.names()))
            case ThreadCommand("model", name):
                models = self._router.instance(agent).models
                found = next((each for each in models if each.lower() == name.lower()), "")
                if found or (name.lower() == DEFAULT_MODEL and models):
                    facts[f"model:{found}"] = message.ts
                    notice = replace(notice, text=texts.model_chosen(found or models[0]))
                else:
                    notice = replace(notice, text=texts.models(models, thread.model, name))
            case _ if message.direct:
                notice = replace(notice, text=texts.NOT_MUTED)
            case ThreadCommand("mute"):
                facts[f"muted:{message.ts}"] = message.ts
                marked_ts = "" if thread.is_unmuted_after(message.ts) else message.ts
                notice = replace(notice, text=texts.MUTED, muted_ts=marked_ts)
            case ThreadCommand("unmute"):
                facts[f"unmuted:{message.ts}"] = message.ts
                notice = replace(notice, text=texts.UNMUTED, unmuted=thread.mutes_before(message.ts))
        entry = InboxEntry(message.id, "notice", asdict(notice))
        await self._runs.admit(message.place.conversation_id, entry, agent, facts)

    async def _store_stop(self, message: SlackMessage, name: str) -> str:
        """Stop a worker (by its id), all workers that were dispatched before, or the sub-agents of a name."""
        conversation_id, written_s = message.place.conversation_id, float(message.ts)
        found = await self._workers.of_thread(conversation_id) if self._workers is not None else ()
        meant = {name.lower()}
        if is_all := name.lower() == "all":
            meant = {each.id for each in found if each.created_s <= written_s}
        stop, stopped = StopRequest(f"{message.id}:named", message.user, message.ts), []
        for each in found:
            if each.id in meant and not each.ended_s:
                at = f"{max(written_s, self._now_s()):.6f}"
                request = replace(stop, id=f"{stop.id}:{each.id}", at=at)
                stopped.append(await self._runs.admit(each.conversation_id, stop_entry(request)))
        if stopped:
            return texts.stopping_workers(len(stopped)) if any(stopped) else ""  # else it was answered
        if is_all:
            return texts.NO_WORKER_AT_WORK if found else texts.NO_WORKERS
        await self._runs.admit(conversation_id, stop_entry(replace(stop, agent=name, message=message)))
        return ""
