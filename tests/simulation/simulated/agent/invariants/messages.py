"""Invariants of messages and notices, from their acceptance to a committed row and a request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator_interactive import Receipt
from orchestrator_interactive.loop.tool_results import LATE_PREFIX
from simulated.agent.messages import Post, Row, comparable, marks, metadata_of, text_of
from simulated.simulation import Simulation

from .records import Invariant, ModelCall, RunRecord, is_answered

_URGENT_WITHIN_S = 1.0
_NOTICE = re.compile(r"<n(\d+)>")
# The metadata of user rows that are no prompts.
_NO_PROMPT = {"injections", "notices", "results"}


class Deliveries(Invariant):
    """Each accepted message is in one committed row, withdrawn, or pending, in the order of acceptance."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._pending: list[Post] = []
        self._withdrawn: list[int] = []
        self._applied: list[str] = []
        self.delivered: list[int] = []
        self.run: RunRecord | None = None

    def pending(self) -> list[Post]:
        """Return the accepted messages that are in no row, oldest first."""
        return list(self._pending)

    def take_pending(self) -> list[Post]:
        """Return the pending messages for another process, which accepts them again."""
        pending, self._pending = self._pending, []
        return pending

    def is_pending(self, post: Post) -> bool:
        return self._place_of(post.number) is not None

    def is_delivered(self, post: Post) -> bool:
        return post.number in self.delivered

    def on_run_started(self, run: RunRecord) -> None:
        self.run = run
        self._pending.append(run.prompt)

    def on_accepted(self, post: Post, _receipt: Receipt) -> None:
        self._pending.append(post)

    def on_edited(self, post: Post) -> None:
        self._replace(post, "edited", [post])

    def on_withdrawn(self, post: Post, _message_id: str) -> None:
        self._withdrawn.append(post.number)
        self._replace(post, "withdrawn", [])

    def _replace(self, post: Post, change: str, by: list[Post]) -> None:
        if (place := self._place_of(post.number)) is None:
            self.violation(f"Message {post.number} was {change}, and is not pending.")
        else:
            self._pending[place : place + 1] = by

    def on_row(self, row: Row) -> None:
        found = marks(text_of(row))
        if found and row["role"] != "user":
            self.violation(f"A row of role '{row['role']}' has the text of message {found[0]}.")
        ids = metadata_of(row).get("injections")
        for number in found:
            self._deliver(number, row)
        if ids is not None and len(ids) != len(found):
            self.violation(f"A row lists {len(ids)} messages; it has {len(found)}.")

    def on_hook(self, event: str, data: dict[str, Any]) -> None:
        for each in data["ids"] if event == "injection:applied" else ():
            if each in self._applied:
                self.violation(f"injection:applied has reported {each} twice.")
            self._applied.append(each)

    def on_progress(self, event: str, data: dict[str, Any]) -> None:
        if event == "complete" and self.run is not None:  # a prompt without a row belongs to its sender
            numbers = [post.number for post in self._pending if post != self.run.prompt]
            if data["waiting"] != len(numbers):
                self.violation(f"The agent reports {data['waiting']} pending messages; pending are {numbers}.")

    def on_returned(self, run: RunRecord) -> None:
        """A prompt whose run ended before the prompt was committed belongs to its sender again."""
        if run.prompt in self._pending:
            self._pending.remove(run.prompt)
            if run.statuses.get("progress") == "success":
                self.violation(f"The run succeeded, and its prompt, message {run.prompt.number}, is in no row.")

    on_killed = on_returned

    def on_end(self) -> None:
        for post in self._pending:
            self.violation(f"Message {post.number} was accepted, and is in no row at the end: it is lost.")

    def _deliver(self, number: int, row: Row) -> None:
        if number in self.delivered:
            self.violation(f"Message {number} was delivered twice.")
            return
        self.delivered.append(number)
        place = self._place_of(number)
        if place is None:
            reason = "was withdrawn" if number in self._withdrawn else "was never accepted"
            self.violation(f"Message {number} is in a row, and {reason}.")
            return
        if place > 0:
            self.violation(f"Message {number} was delivered before message {self._pending[0].number}, which is older.")
        post = self._pending.pop(place)
        self.sim.count("message delivered")
        if comparable(post.text) not in comparable(text_of(row)):
            self.violation(f"The text of message {post.number} was changed on the way.")
        ids = metadata_of(row).get("injections")
        if ids is not None and not post.plain and post.id not in ids:
            self.violation(f"Message {post.number} is in a row that does not list its id.")

    def _place_of(self, number: int) -> int | None:
        return next((i for i, post in enumerate(self._pending) if post.number == number), None)


class Notices(Invariant):
    """A notice is delivered once, at the start of a later run."""

    def __init__(self, sim: Simulation, deliveries: Deliveries):
        super().__init__(sim)
        self._deliveries = deliveries
        self._count = 0
        self._pending: list[int] = []

    def create(self) -> str:
        self._count += 1
        self._pending.append(self._count)
        return f"<n{self._count}> something was done elsewhere"

    def on_row(self, row: Row) -> None:
        run = self._deliveries.run
        for found in map(int, _NOTICE.findall(text_of(row))):
            if found not in self._pending:
                self.violation(f"Notice {found} was delivered twice.")
                continue
            if self._pending[0] != found:
                self.violation(f"Notice {found} was delivered before notice {self._pending[0]}, which is older.")
            self._pending.remove(found)
            if run is not None and self._deliveries.is_delivered(run.prompt):
                self.violation(f"Notice {found} was delivered in the middle of a run.")

    def on_killed(self, _run: RunRecord) -> None:
        self._pending.clear()  # notices are in memory only

    def on_end(self) -> None:
        for each in self._pending:
            self.violation(f"Notice {each} was never delivered.")


@dataclass(slots=True)
class _State:
    """The state of a message, by the actions of its author and by the log."""

    post: Post
    state: str = "waiting"
    iteration: int | None = None


class Receipts(Invariant):
    """The reported state of each message agrees with the log and with its author's actions."""

    def __init__(self, sim: Simulation):
        super().__init__(sim)
        self._states: dict[str, _State] = {}
        self._answers = 0
        self._has_reported_end = False

    def on_run_started(self, _run: RunRecord) -> None:
        self._states = {each: state for each, state in self._states.items() if state.state == "waiting"}
        self._answers = 0
        self._has_reported_end = False

    def on_killed(self, _run: RunRecord) -> None:
        self._states.clear()  # receipts are in memory only

    def on_accepted(self, post: Post, receipt: Receipt) -> None:
        if (receipt.state, receipt.iteration) != ("waiting", None):
            self.violation(f"The receipt for message {post.number} starts with '{receipt.state}'.")
        if not post.plain and receipt.id != post.id:
            self.violation(f"The receipt for message {post.number} has the id {receipt.id}.")
        self._states.pop(receipt.id, None)
        self._states[receipt.id] = _State(post)

    def on_withdrawn(self, _post: Post, message_id: str) -> None:
        # Between the end of a run and the return of its session, the agent may have forgotten the message.
        self._states[message_id].state = "withdrawn after the end" if self._has_reported_end else "withdrawn"

    def on_hook(self, event: str, data: dict[str, Any]) -> None:
        if is_answered(event, data):
            self._answers += 1

    def on_row(self, row: Row) -> None:
        for each in metadata_of(row).get("injections", ()):
            if (state := self._states.get(each)) is None:
                self.violation("A row lists a message that has no receipt.")
                continue
            if state.state.startswith("withdrawn"):
                self.violation(f"Message {state.post.number} was withdrawn, and is in a row.")
            state.state, state.iteration = "delivered", self._answers + 1

    def on_progress(self, event: str, data: dict[str, Any]) -> None:
        if event == "complete":
            self._has_reported_end = True
            self.check(None, data["messages"], "The end of the run")

    def check(self, run: RunRecord | None, receipts: Iterable[dict[str, Any]], source: str) -> None:
        if run is not None and run.was_abandoned:
            return  # the last row may be missing
        late = {each for each, state in self._states.items() if state.state == "withdrawn after the end"}
        reported = [(each["id"], each["state"], each["iteration"]) for each in receipts if each["id"] not in late]
        states = [(each, state.state, state.iteration) for each, state in self._states.items() if each not in late]
        if reported != states:
            wrong = [f"{self._name(e[0])} {e[1:]}" for e in reported if e not in states]
            right = [f"{self._name(e[0])} {e[1:]}" for e in states if e not in reported]
            self.violation(f"{source} reports {wrong or 'another order'}; it is {right}.")

    def _name(self, message_id: str) -> str:
        state = self._states.get(message_id)
        return "an unknown message" if state is None else f"message {state.post.number}"


class _Row(NamedTuple):
    """A row of the log. `content`: the messages or late results of a user row."""

    role: str
    is_prompt: bool
    content: str


class InjectionTiming(Invariant):
    """A message is in the request after the answer during which it arrived, and in every later request.

    After a refusal, its task is left out of later requests, and the messages that were injected right before it.
    """

    def __init__(self, sim: Simulation, deliveries: Deliveries):
        super().__init__(sim)
        self._deliveries = deliveries
        self._answers = 0
        self._arrived_at: dict[int, int] = {}
        self._rows: list[_Row] = []

    def on_run_started(self, run: RunRecord) -> None:
        self._answers += 1
        self._arrived_at[run.prompt.number] = self._answers

    def on_accepted(self, post: Post, _receipt: Receipt) -> None:
        self._arrived_at[post.number] = self._answers

    def on_model_returned(self) -> None:
        self._answers += 1

    def on_row(self, row: Row) -> None:
        metadata, role = metadata_of(row), row["role"]
        if is_refused(row):
            self._leave_out_the_task()
            return
        is_prompt = role == "user" and metadata.get("source") != "hook" and not _NO_PROMPT & metadata.keys()
        self._rows.append(_Row(role, is_prompt, _content(text_of(row)) if role == "user" else ""))

    def _leave_out_the_task(self) -> None:
        rows = self._rows
        begin = max((place for place, row in enumerate(rows) if row.is_prompt), default=0)
        while begin > 0 and rows[begin - 1].role == "user" and not rows[begin - 1].is_prompt:
            begin -= 1
        rows[begin:] = [_Row("user", is_prompt=True, content="")]

    def on_model_called(self, call: ModelCall) -> None:
        for post in self._deliveries.pending():
            if self._arrived_at.get(post.number, self._answers) < self._answers:
                self.violation(f"Message {post.number} arrived before the last answer, and is not in the request.")
        if not call.is_whole:
            return
        users = (each for each in call.request.messages if each.role == "user")
        texts = (text_of(each.model_dump(include={"content"})) for each in users)
        read = [content for text in texts if (content := _content(text))]
        expected = [row.content for row in self._rows if row.content]
        if read != expected:
            self.violation(f"The log has the messages {expected}; the model reads {read}.")


def is_refused(row: Row) -> bool:
    """Return whether a row records that a model refused to answer."""
    return bool(metadata_of(row).get("refused"))


def _content(text: str) -> str:
    return "late results" if text.startswith(LATE_PREFIX) else ", ".join(map(str, marks(text)))


class UrgentMessages(Invariant):
    """An urgent message is in a request within one second, not counting delays by hooks, stores and retries."""

    def __init__(self, sim: Simulation, deliveries: Deliveries):
        super().__init__(sim)
        self._deliveries = deliveries
        self._open: dict[int, tuple[Post, float]] = {}

    def on_run_started(self, _run: RunRecord) -> None:
        self._open = {number: (post, self._now()) for number, (post, _) in self._open.items()}

    def on_accepted(self, post: Post, _receipt: Receipt) -> None:
        if post.is_urgent:
            self._open[post.number] = (post, self._now())

    def on_withdrawn(self, post: Post, _message_id: str) -> None:
        self._open.pop(post.number, None)

    def on_model_called(self, _call: ModelCall) -> None:
        for post, since_s in list(self._open.values()):
            if self._deliveries.is_delivered(post):
                self.sim.count("urgent message read")
                self._check(post, since_s)
                del self._open[post.number]

    def on_returned(self, run: RunRecord) -> None:
        for post, since_s in self._open.values() if run.cut_s is None else ():
            self._check(post, since_s)

    def _check(self, post: Post, since_s: float) -> None:
        if (waited_s := self._now() - since_s) > _URGENT_WITHIN_S:
            self.violation(f"The urgent message {post.number} was not read for {waited_s:.3f} s.")

    def _now(self) -> float:
        """Return the time during which the agent did not wait for others."""
        return self.sim.now() - self.sim.waited_s()
