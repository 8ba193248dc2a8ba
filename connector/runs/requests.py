"""Ask people about a run: requests are stored before they are shown, and each gets one answer."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import structlog

from connector import texts
from connector.events import RequestAddress
from connector.protocols import ALLOW, PersonAnswer, Sharing
from connector.records import AnsweredRequest, RequestRecord
from connector.runs.posts import files_post, request_post, service_post
from connector.runs.request_view import (
    answer_line,
    answered_content,
    file_of,
    waiting_content,
    who_may,
    without_file,
)
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from connector.events import RequestClick, ThreadAddress
    from connector.protocols import ConversationLease, End, PersonRequest, SharedFile
    from connector.records import RunRecord
    from connector.runs.background_tasks import BackgroundTasks
    from connector.runs.outbox import Outbox
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)

_KEY_CHARS = 16
_PART = "ask:"
# Time after a deadline in which clicks that were stored before it are applied.
_APPLIED_WITHIN_S = 0.5


class Requests:
    """The requests of one run; implements `connector.protocols.People`.

    A request is stored with the run's record in one step with the message that shows it. So is its answer, before the
    run gets it, and the moment from which the approved call may have an effect. A later owner of the run finds all of
    them.

    Args:
        record: returns the run's record; `keep` replaces fields of it, by name; `store` stores it, and the ends of
            closed entries with it.
        on_change: called when the run begins or ceases to wait for people.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        lease: ConversationLease,
        outbox: Outbox,
        workspace: WorkspaceContext,
        record: Callable[[], RunRecord],
        keep: Callable[..., None],
        store: Callable[..., Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        self._lease = lease
        self._outbox = outbox
        self._router = workspace.router
        self._background: BackgroundTasks = workspace.background
        self._observer = workspace.observer
        self._home = workspace.home
        self._record = record
        self._keep = keep
        self._store_record = store
        self._on_change = on_change
        # The answers that the run waits for, by key.
        self._expected: dict[str, asyncio.Future[None]] = {}
        # Requests whose calls were cancelled, by a stop or with a session that another process resumes.
        self._cancelled: set[str] = set()
        # Ids of requests that were answered by a message before the run waited for the answer.
        self._replied: set[str] = set()
        # Requests whose messages are out of date, and those whose messages are being edited.
        self._outdated: set[str] = set()
        self._editing: set[str] = set()

    @property
    def owner(self) -> str:
        """The user who began the run."""
        return self._record().first.owner

    @property
    def waiting(self) -> list[RequestRecord]:
        """The requests that the run waits for now."""
        records = self._record().requests
        return [records[key] for key in self._expected if records[key].answer is None]

    @property
    def unsettled(self) -> tuple[AnsweredRequest, ...]:
        """The messages that do not show their answers yet, that late edits may change, or that have a late copy."""
        is_inherited = self._record().was_taken_over or self._outbox.is_in_doubt
        return tuple(
            AnsweredRequest(self._record().first.message, self._post_key(each), each, is_inherited)
            for each in self._record().requests.values()
            if each.answer is not None and (is_inherited or not each.is_settled) and not each.request.person
        )

    async def ask(self, request: PersonRequest) -> PersonAnswer:
        """Ask, and return the answer once it is stored. A request with a known id and digest is not asked again."""
        key = _key_of(request)
        found = self._record().requests.get(key)
        if found is None:
            await self._begin(key, request)
        elif found.answer is not None:
            return found.answer
        if request.person:  # Slack does not keep it: each owner of the run shows it again
            self._background.spawn(self._show_privately(key))
        return await self._answer_to(key)

    async def _begin(self, key: str, request: PersonRequest) -> None:
        """Store a request in one step with its message. It voids an earlier one about something else."""
        voided = [each for each in self._record().requests.values() if each.request.id == request.id]
        for each in voided:  # also one that was allowed: the arguments may change back
            if each.answer is None or (each.answer.allows and not each.has_begun):
                self._void(each, texts.CHANGED_REQUEST)
        if not self._record().first.has_person and request.approvers == ("owner",):  # a bot answers nothing
            request = replace(request, approvers=("participants",))
        record = RequestRecord(key, without_file(request), self._background.now_s() + request.timeout_s)
        self._set(record)
        part = f"{_PART}{key}"
        if request.person:
            name = await self._background.users.known_name_of(request.person)
            posts = service_post(part, texts.asked_privately(name))
        else:
            content = waiting_content(self._address(key), record, self._record().first)
            posts = (request_post(part, content, file_of(request)),)
        log.info("request.asked", **self._log_fields(record), until_s=round(record.deadline_s))
        await self._outbox.add(*posts, run=lambda: asdict(self._record()))
        self._show_at_home()

    async def _answer_to(self, key: str) -> PersonAnswer:
        """Wait for the answer, at most until the deadline."""
        expected = self._expected[key] = asyncio.get_running_loop().create_future()
        self._cancelled.discard(key)
        self._on_change()
        try:
            record = self._record().requests[key]
            if record.answer is None and record.request.id in self._replied:
                self._replied.discard(record.request.id)  # a changed request needs an answer of its own
                await self._store(key, PersonAnswer("message"))
            # A click in time may be stored and not applied yet.
            left_s = max(record.deadline_s + _APPLIED_WITHIN_S - self._background.now_s(), _APPLIED_WITHIN_S)
            if record.answer is None and not (await asyncio.wait({expected}, timeout=left_s))[0]:
                default = record.request.default
                await self._store(key, PersonAnswer("deadline", () if default is None else (default,)))
        except asyncio.CancelledError:
            self._cancelled.add(key)
            raise
        finally:
            del self._expected[key]
            self._on_change()
        answer = self._record().requests[key].answer
        assert answer is not None  # noqa: S101 - it is stored
        return answer

    async def _store(self, key: str, answer: PersonAnswer, closed: Mapping[int, End] | None = None) -> None:
        """Store the answer, unless there is one, in one step with `closed`; then the run gets it and people see it."""
        record = self._record().requests[key]
        if is_first := record.answer is None:
            answer = replace(answer, at_s=self._background.now_s())
            self._set(replace(record, answer=answer))
        await self._store_record(closed)
        record = self._record().requests[key]
        if is_first:
            given = {"kind": answer.kind, "by": answer.by, "chosen": answer.chosen}
            log.info("request.answered", **self._log_fields(record), **given)
            self._observer.answered(record.request, answer, self._lease.conversation_id, self._record().id)
        self._resolve(record)
        self._show_at_home()

    def _show_at_home(self) -> None:
        if self._home is not None:
            self._home.asked(self._record())

    def _resolve(self, record: RequestRecord) -> None:
        expected = self._expected.get(record.key)
        if expected is not None and not expected.done():
            expected.set_result(None)
        self._on_change()
        self._show_answer(record.key)

    async def click(self, click: RequestClick, closed: Mapping[int, End]) -> str:
        """Apply a person's answer. Return the reply to this person; blank: the answer took effect, and is stored.

        `closed` is stored with it.
        """
        record = self._record().requests.get(click.key)
        if record is None:
            return texts.NO_REQUEST
        if objection := await self._objection(record, click):
            self._show_in_reply(click)
            return objection
        allows = click.chosen == (ALLOW,)
        by = (*record.votes, click.by) if allows else (click.by,)
        names = tuple([await self._background.users.known_name_of(user) for user in by])
        if self._record().requests[click.key].answer is not None:  # its time or its run was over in the meantime
            return texts.TOO_LATE
        if allows and len(by) < record.request.needed:
            self._set(replace(self._record().requests[click.key], votes=by))
            await self._store_record(closed)
            self._show_answer(click.key)
            self._show_at_home()
            return ""
        if click.ts and not record.ts:  # an earlier owner posted it
            self._set(replace(self._record().requests[click.key], ts=click.ts))
        answer = PersonAnswer("click", click.chosen, by, names, click.text.strip(), click.always)
        await self._store(click.key, answer, closed)
        self._show_in_reply(click)
        return ""

    def _show_in_reply(self, click: RequestClick) -> None:
        """Replace the buttons of a private question, which Slack lets one do only in reply to a click."""
        record = self._record().requests[click.key]
        if click.response_url and record.answer is not None:
            self._background.spawn(self._background.client.respond(click.response_url, answered_content(record)))

    async def _objection(self, record: RequestRecord, click: RequestClick) -> str:
        """Return why a click does not count; blank: it does."""
        request, answer = record.request, record.answer
        is_choice = all(0 <= place < len(request.options) for place in click.chosen)
        objections = {
            texts.TOO_LATE: (click.admitted_s or self._background.now_s()) >= record.deadline_s,
            texts.NO_REQUEST: not is_choice or (click.always and click.always not in dict(request.always)),
            texts.CHOOSE_FIRST: not (click.chosen or (click.text and not request.is_approval)),
            texts.SECOND_PERSON: click.by in record.votes and click.chosen == (ALLOW,),
        }
        if answer is not None:
            return texts.TOO_LATE if answer.kind == "deadline" else texts.answered_already(answer_line(answer, request))
        if not await self._may_answer(request, click):
            return texts.not_your_request(who_may(request, self.owner))
        return next((text for text, applies in objections.items() if applies), "")

    async def _may_answer(self, request: PersonRequest, click: RequestClick) -> bool:
        if request.person:
            return click.by == request.person
        approvers = set(request.approvers)
        if "anyone" in approvers or click.by in approvers or ("owner" in approvers and click.by == self.owner):
            return True
        if "participants" not in approvers:
            return False
        return (await self._router.people_in(self._place)).takes_part(click.by, click.at)

    async def asked_s(self, request_id: str) -> float | None:
        """Return when a request that waits for its answer was shown; see `connector.protocols.People`."""
        found = [each for each in self._record().requests.values() if each.request.id == request_id]
        shown = [each.ts or each.deadline_s - each.request.timeout_s for each in found if each.answer is None]
        return float(shown[0]) if shown else None

    def answer_by_message(self, request_id: str) -> None:
        """Answer a request that takes text: the agent reads the answer as a message."""
        record = next((each for each in self.waiting if each.request.id == request_id), None)
        if record is None:
            self._replied.add(request_id)
        else:
            self._background.spawn(self._store(record.key, PersonAnswer("message")))

    @property
    def unbegun(self) -> frozenset[str]:
        """The ids of the requests whose subjects have certainly not begun."""
        found = self._record().requests.values()
        return frozenset(each.request.id for each in found) - {each.request.id for each in found if each.has_begun}

    async def start(self, request_id: str, digest: str, *, repeatable: bool = False) -> str | None:
        """Record that the subject of a request begins now, for good; see `connector.protocols.People`."""
        found = [each for each in self._record().requests.values() if each.request.id == request_id]
        found = [each for each in found if each.request.is_approval]
        if not found:
            return None
        begun = [each.request.digest for each in found if each.has_begun]
        if begun:
            return None if repeatable and digest in begun else texts.BEGUN_BEFORE
        record = next((each for each in found if each.request.digest == digest), None)
        if record is None or (record.answer is not None and not record.answer.allows):
            return texts.CHANGED_REQUEST
        if record.answer is None:  # a rule allows it by now
            self._void(record, texts.ALLOWED_BY_RULE)
        self._set(replace(self._record().requests[record.key], has_begun=True))
        await self._store_record()
        return None

    async def sharing(self) -> Sharing:
        """Return the files that the run has shared, and the time of its first message."""
        return Sharing(float(self._record().first.message.ts), self._record().shared)

    async def share(self, share_id: str, files: Sequence[SharedFile], comment: str) -> None:
        """Share files in the thread; see `connector.protocols.People`."""
        part = f"share:{sha256(share_id.encode()).hexdigest()[:_KEY_CHARS]}"
        digests = (*self._record().shared, *(each.digest for each in files))
        self._keep(shared=tuple(dict.fromkeys(digests)))
        await self._outbox.add(files_post(part, files, comment), run=lambda: asdict(self._record()))

    def on_event(self, event: str, data: Mapping[str, Any]) -> None:
        """Void the requests of stopped calls: the agent continues without them, or their sub-agent has ended.

        A session that begins again asks again.
        """
        match event, data.get("state"):
            case "executing", _:
                self._cancelled.clear()
            case "thinking", _:
                self._void_cancelled()
            case "agent", "success" | "incomplete" | "cancelled":
                self._void_cancelled(f"{data['id']}/")

    def _void_cancelled(self, scope: str = "") -> None:
        for key in [each for each in self._cancelled if self._record().requests[each].request.id.startswith(scope)]:
            self._cancelled.discard(key)
            self._background.spawn(self._store(key, PersonAnswer("void", text=texts.CALL_STOPPED)))

    def void(self) -> None:
        """End all requests that wait, because the run ends. The caller stores the record."""
        for record in self._record().requests.values():
            if record.answer is None:
                self._void(record, texts.RUN_ENDED)

    def _void(self, record: RequestRecord, why: str) -> None:
        self._set(replace(record, answer=PersonAnswer("void", text=why, at_s=self._background.now_s())))
        self._resolve(self._record().requests[record.key])

    def resume(self) -> None:
        """Show the answers that an earlier owner stored and may not have shown."""
        for record in self._record().requests.values():
            if record.answer is not None:
                self._show_answer(record.key)

    def on_posted(self, part: str, ts: str) -> None:
        """Note the ts of a message; blank: Slack rejected it, so it cannot be answered."""
        key = part.removeprefix(_PART)
        if part == key or (record := self._record().requests.get(key)) is None:
            return
        if ts:
            self._set(replace(record, ts=ts))
            if record.answer is not None or record.votes:
                self._show_answer(key)
        elif record.answer is None:
            self._background.spawn(self._store(key, PersonAnswer("void", text=texts.NOT_SHOWN)))

    def _show_answer(self, key: str) -> None:
        record = self._record().requests[key]
        if record.ts and not record.request.person:
            self._outdated.add(key)
            if key not in self._editing:
                self._background.spawn(self._settle(key))

    async def _settle(self, key: str) -> None:
        """Replace the buttons by the answer, or show the votes so far. One edit is made at a time, the latest last."""
        record, client = self._record().requests[key], self._background.client
        address, first = self._address(key), self._record().first

        def compose() -> Any:
            latest = self._record().requests[key]
            return answered_content(latest) if latest.answer is not None else waiting_content(address, latest, first)

        slot = CallSlot(Priority.PERSON, self._lease.conversation_id)
        self._editing.add(key)
        try:
            while key in self._outdated:
                self._outdated.discard(key)
                await client.retry_until_done(partial(client.update, self._place.channel, record.ts, compose, slot))
        finally:
            self._editing.discard(key)
        record = self._record().requests[key]
        self._set(replace(record, is_settled=record.answer is not None))

    async def _show_privately(self, key: str) -> None:
        record = self._record().requests[key]
        content = waiting_content(self._address(key), record, self._record().first)
        client, slot = self._background.client, CallSlot(Priority.PERSON)
        try:
            await client.retry_until_done(
                partial(client.post_ephemeral, self._place, record.request.person, content, slot)
            )
        except SlackCallFailed as e:
            log.warning("request.not_shown", **self._log_fields(record), error=e.error)
            if self._record().requests[key].answer is None:
                await self._store(key, PersonAnswer("void", text=texts.NOT_SHOWN))

    def _set(self, record: RequestRecord) -> None:
        self._keep(requests={**self._record().requests, record.key: record})

    def _address(self, key: str) -> RequestAddress:
        return RequestAddress(self._place, self._record().id, key)

    def _post_key(self, record: RequestRecord) -> str:
        return f"{self._record().id}:{_PART}{record.key}:"

    @property
    def _place(self) -> ThreadAddress:
        return self._record().first.message.place

    def _log_fields(self, record: RequestRecord) -> dict[str, Any]:
        kind = "approval" if record.request.is_approval else "question"
        return {"request": record.key, "about": record.request.id, "request_kind": kind}


def _key_of(request: PersonRequest) -> str:
    return sha256(json.dumps([request.id, request.digest]).encode()).hexdigest()[:_KEY_CHARS]
