"""The Home tab of each person: their active runs, pending approvals, recent conversations, rules and usage."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from connector.protocols import Refused
from connector.records import active_run
from connector.runs.home_view import Active, Asked, HomeContent, Recent, home_view, refused_view
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from connector.events import HomeClick, HomeOpened
    from connector.protocols import (
        ConversationHistory,
        EndedRun,
        InboxEntry,
        PersonalRecords,
        RunService,
        ThreadFacts,
    )
    from connector.records import RunRecord
    from connector.routing import Router
    from connector.runs.background_tasks import BackgroundTasks
    from connector.schedules import Schedules

    # By conversation: the stored run, and the pending entries.
    Work = Mapping[str, tuple[Mapping[str, Any] | None, tuple[InboxEntry, ...]]]

log = structlog.get_logger(__name__)

# A Home tab that was not opened for this long is out of date; it is published again when it is opened.
_WATCHED_S = 3600.0
# Least time between two publications for one person, and how long changes are collected, in seconds.
_INTERVAL_S, _COLLECT_S = 4.0, 0.5
_MOST_RECENT = 10
_MOST_PEOPLE = 10_000


@dataclass(frozen=True, slots=True)
class HomeSources:
    """The sources of the Home tabs. `url`: of the workspace, with a slash at its end."""

    runs: RunService
    router: Router
    records: PersonalRecords
    history: ConversationHistory | None
    url: str
    schedules: Schedules | None = None


class HomeTabs:
    """Publishes the Home tab of a person when they open it and, for an hour, whenever something in it changes.

    A publication has the lowest priority of all calls, and nothing waits for it. Changes that come close together make
    one publication, which shows the latest state.
    """

    def __init__(self, background: BackgroundTasks, sources: HomeSources) -> None:
        self._background = background
        self._sources = sources
        # By person whose tab is to be published again: when it last changed, in the event loop's time.
        self._outdated: dict[str, float] = {}
        # People whose tab is being published.
        self._publishing: set[str] = set()
        # When the tab of a person was last published, in the event loop's time.
        self._published_s: dict[str, float] = {}
        # The work of the whole workspace, and when it was read: many tabs share it.
        self._work: tuple[float, Work] = (-1.0, {})
        self._reading = asyncio.Lock()

    def open(self, opened: HomeOpened, refusal: str | None) -> None:
        """Publish the tab for a person who opens it; `refusal`: why they cannot use the bot."""
        if refusal is not None:
            self._background.spawn(self._send(opened.user, refused_view(refusal)))
        else:
            self._background.spawn(self._open(opened.user))

    async def _open(self, user: str) -> None:
        await self._sources.records.opened_home(self._team, user, self._background.now_s())
        await self._publish(user, asyncio.get_running_loop().time())

    async def revoke(self, click: HomeClick) -> None:
        """Delete a rule or a schedule that a person has made. Those of other people stay as they are."""
        schedules = self._sources.schedules
        if click.schedule and schedules is not None:
            if await schedules.revoke(self._team, click.user, click.schedule):
                log.info("schedule.revoked", schedule=click.schedule, by=click.user)
        elif await self._sources.records.revoke(self._team, click.user, click.rule):
            log.info("rule.revoked", rule=click.rule, by=click.user)
        self.changed(click.user)

    def changed(self, *users: str) -> None:
        """Publish the tabs of some people again, if they are open: another process may have seen the visit."""
        now_s = asyncio.get_running_loop().time()
        for user in users:
            if user in self._outdated:
                self._outdated[user] = now_s
            elif user and len(self._outdated) < _MOST_PEOPLE:
                self._outdated[user] = now_s
                self._background.spawn(self._publish_again(user))

    def asked(self, record: RunRecord) -> None:
        """Publish the tabs of all who see the requests of a run."""

        async def changed() -> None:
            self.changed(*_people_of(record, await self._sources.router.people_in(record.first.message.place)))

        self._background.spawn(changed())

    async def _publish_again(self, user: str) -> None:
        now_s, published_s = asyncio.get_running_loop().time(), self._published_s.get(user, 0.0)
        try:
            await self._background.sleep_until(max(now_s + _COLLECT_S, published_s + _INTERVAL_S))
        finally:
            changed_s = self._outdated.pop(user)
        opened_s = await self._sources.records.home_opened_s(self._team, user)
        if opened_s > self._background.now_s() - _WATCHED_S:
            await self._publish(user, changed_s)

    async def _publish(self, user: str, changed_s: float) -> None:
        """Publish the state of this time, in the event loop's time, or a later one."""
        if user in self._publishing:
            self.changed(user)
            return
        self._publishing.add(user)
        try:
            await self._send(user, home_view(await self._content(user, changed_s)))
        finally:
            self._publishing.discard(user)

    async def _at_work(self, changed_s: float) -> Work:
        async with self._reading:
            if self._work[0] < changed_s:
                began_s = asyncio.get_running_loop().time()
                self._work = began_s, await self._sources.runs.at_work(self._team)
            return self._work[1]

    async def _send(self, user: str, view: dict[str, Any]) -> None:
        self._published_s.pop(user, None)
        self._published_s[user] = asyncio.get_running_loop().time()
        if len(self._published_s) > _MOST_PEOPLE:
            self._published_s.pop(next(iter(self._published_s)))
        arguments = {"user_id": user, "view": json.dumps(view)}
        await self._background.client.call("views.publish", arguments, CallSlot(Priority.LOOK_UP))

    async def _content(self, user: str, changed_s: float) -> HomeContent:
        sources, active, asked = self._sources, list[Active](), list[Asked]()
        for name, (run, entries) in (await self._at_work(changed_s)).items():
            record = active_run(run)
            if record is not None and not record.is_over:
                waiting = [each for each in record.requests.values() if each.answer is None]
                if record.first.owner == user:
                    of_run = record.first.prompt, record.first.written_s, record.id, bool(waiting)
                    active.append(Active(name, *of_run))
                thread = await sources.router.people_in(record.first.message.place) if waiting else None
                asked += [
                    Asked(name, record, each, is_reader=_takes_part(user, record, thread))
                    for each in waiting
                    if thread is not None
                    and _may_answer(user, each.request.person, each.request.approvers, record, thread)
                ]
            elif record is None and (queued := _first_of(user, entries)) is not None:
                active.append(Active(name, str(queued.data["prompt"]), float(queued.data["message"]["ts"])))
        ended = await sources.records.runs_of(self._team, user)
        return HomeContent(
            bot_user=sources.router.bot_user,
            url=sources.url,
            now_s=self._background.now_s(),
            active=tuple(active),
            asked=tuple(asked),
            rules=await sources.records.rules_of(self._team, user),
            schedules=await sources.schedules.of_person(self._team, user) if sources.schedules is not None else (),
            recent=await self._recent(ended),
            ended=ended,
            instances=tuple(map(sources.router.instance, sources.router.names())),
        )

    async def _recent(self, ended: tuple[EndedRun, ...]) -> tuple[Recent, ...]:
        latest: dict[str, EndedRun] = {}
        for run in ended:
            latest.setdefault(run.conversation_id, run)
        recent: list[Recent] = []
        for run in list(latest.values())[:_MOST_RECENT]:
            title = ""
            if self._sources.history is not None:
                with suppress(Refused):
                    title = await self._sources.history.title(run.instance, run.conversation_id)
            recent.append(Recent(run.conversation_id, title, run.instance, run.ended_s))
        return tuple(recent)

    @property
    def _team(self) -> str:
        return self._sources.router.team


def _people_of(record: RunRecord, thread: ThreadFacts) -> set[str]:
    """Return the people whose Home tab shows the requests of a run."""
    asked = {each.request.person for each in record.requests.values()}
    approvers = {user for each in record.requests.values() for user in each.request.approvers}
    people = {name.removeprefix("person:") for name in thread.latest if name.startswith("person:")}
    return {record.first.owner, *asked, *approvers, *people} - {"", "owner", "participants", "anyone"}


def _may_answer(user: str, person: str, approvers: tuple[str, ...], record: RunRecord, thread: ThreadFacts) -> bool:
    """Return whether a request is shown to a user: they may answer it, and take part in its thread or are named."""
    if person:
        return person == user
    is_owner = record.first.owner == user
    by_thread = _takes_part(user, record, thread) and not {"participants", "anyone"}.isdisjoint(approvers)
    return user in approvers or by_thread or (is_owner and "owner" in approvers)


def _takes_part(user: str, record: RunRecord, thread: ThreadFacts) -> bool:
    return record.first.owner == user or f"person:{user}" in thread.latest


def _first_of(user: str, entries: tuple[InboxEntry, ...]) -> InboxEntry | None:
    """Return the first message of a user that waits for its run."""
    return next((each for each in entries if each.kind == "message" and each.data["message"]["user"] == user), None)
