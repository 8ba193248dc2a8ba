"""Connect the approvals and questions of an agent's session to the people in its thread, and keep their rules."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from connector.protocols import ALLOW, DENY, PersonRequest, SharedFile
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.tool_support import current_call
from service.store.base import thread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from connector.protocols import People, PersonAnswer
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.tool_support import CallContext
    from service.store.base import RunStore

_SCOPES = {"conversation": "in this conversation", "instance": "by {instance} everywhere"}
_SESSION, _ALLOW_ALWAYS = "session", "allow always"
_QUESTION = "question"
_NAME_CHARS = 12
_PERSON = re.compile(r"[UW][A-Z0-9]+")
_CONNECTED, _NOT_CONNECTED = "I have connected it", "Do not connect it"
# Time for the login to arrive after a person reports it.
_COMPLETED_WITHIN_S = 10.0

log = structlog.get_logger(__name__)


class AlwaysRules:
    """The rules that people made by “Always allow”, of one workspace each. Each lets an instance call one tool.

    With a `retrying` store, all methods wait while it is unavailable.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store

    async def applicable(self, key: Key) -> list[dict[str, Any]]:
        """Return the rules that apply in a conversation of an instance."""
        return [
            rule
            for rule in await self.all(key.conversation_id.partition(":")[0])
            if rule.get("instance") == key.agent_id
            and rule.get("conversation") in (None, thread_of(key.conversation_id))
        ]

    async def all(self, team: str) -> list[dict[str, Any]]:
        """Return the rules of a workspace, the latest first."""
        found = await self._store.documents(_collection(team))
        return [{**rule, "id": name} for name, rule in found.items()]

    async def add(self, key: Key, tool: str, answer: PersonAnswer, name: str) -> None:
        """Store the rule that an answer makes; `name` is the same if this is repeated."""
        in_conversation = {"conversation": thread_of(key.conversation_id)} if answer.always == "conversation" else {}
        rule = {
            "tool": tool,
            "instance": key.agent_id,
            "by": answer.by[0],
            "at_s": round(answer.at_s),
            **in_conversation,
        }
        collection = _collection(key.conversation_id.partition(":")[0])
        await self._store.put_document(collection, name, rule)

    async def revoke(self, team: str, name: str) -> bool:
        """Delete a rule; return whether it existed."""
        return await self._store.delete_document(_collection(team), name)


def _collection(team: str) -> str:
    return f"always:{team}"


class SessionPeople:
    """The people that one session asks; the approval system of its coordinator.

    Args:
        key: the session's log.
        people: returns the people of the active run; `None`: no one can be asked.
        rules: the rules of all workspaces.
        without_secrets: removes secrets from a text for people.
        scope: prefix of the ids of its calls in requests, `NAME-ID/`: those of a sub-agent may be the same as its
            parent's. Blank: the session is no sub-agent's.
    """

    # Requests survive the process, and so do their deadlines.
    keeps_deadline = True

    def __init__(
        self,
        key: Key,
        people: Callable[[], People | None],
        rules: AlwaysRules,
        without_secrets: Callable[[str], str],
        scope: str = "",
    ) -> None:
        self._key = key
        self._people = people
        self._rules = rules
        self._without_secrets = without_secrets
        self._scope = scope

    def register(self, coordinator: ModuleCoordinator) -> None:
        """Register the approval system and the capabilities."""
        coordinator.approval_system = self
        coordinator.register_capability("approvals.facts", self._facts)
        coordinator.register_capability("approvals.always", self._applicable)
        coordinator.register_capability("approvals.is_waiting", self._is_waiting)
        coordinator.register_capability("approvals.start_call", self._start_call)
        coordinator.register_capability("people.ask", self._ask)
        coordinator.register_capability("people.answer", self._answer)
        coordinator.register_capability("people.connect", self._connect)
        coordinator.register_capability("people.begin", self._begin)
        coordinator.register_capability("people.shared", self._shared)
        coordinator.register_capability("people.share", self._share)
        coordinator.register_capability("people.register", self._register_for)

    def _register_for(self, coordinator: ModuleCoordinator, session_id: str) -> None:
        """Register the people for another session that works for this one; its calls may have the same ids."""
        scope = f"{self._scope}{session_id}/"
        SessionPeople(self._key, self._people, self._rules, self._without_secrets, scope).register(coordinator)

    async def _shared(self) -> dict[str, Any] | None:
        """Return the digests of the files that the run has shared, and when it began; `None`: no one is there."""
        people = self._people()
        return None if people is None else asdict(await people.sharing())

    async def _share(self, share_id: str, files: Sequence[Mapping[str, str]], comment: str) -> None:
        """Share uploaded files in the thread, each with the fields of `SharedFile`; they are stored on return."""
        if (people := self._people()) is not None:
            shown = self._without_secrets(comment)
            await people.share(f"{self._scope}{share_id}", [SharedFile(**each) for each in files], shown)

    def _facts(self) -> dict[str, str]:
        channel = self._key.conversation_id.split(":")[1]
        people = self._people()
        person = "" if people is None else people.owner
        return {
            "instance": self._key.agent_id,
            "channel": channel,
            "conversation": self._key.conversation_id,
            "person": person,
        }

    async def _applicable(self) -> list[dict[str, Any]]:
        return await self._rules.applicable(self._key)

    def _is_waiting(self, call_id: str) -> bool:
        people = self._people()
        return (people is not None and f"{self._scope}{call_id}" in people.unbegun) or self._is_connecting(call_id)

    def _is_connecting(self, call_id: str) -> bool:
        """Return whether a call waits for an account, and has certainly not reached its server."""
        people = self._people()
        return people is not None and self._connecting(call_id) in people.unbegun

    def _connecting(self, call_id: str) -> str:
        return f"{self._scope}{call_id}:account"

    async def _start_call(
        self, call_id: str, tool: str, arguments: Mapping[str, Any], *, repeatable: bool = False
    ) -> str | None:
        if (people := self._people()) is None:
            return None
        may_repeat = repeatable or self._is_connecting(call_id)
        return await people.start(f"{self._scope}{call_id}", _digest(tool, arguments), repeatable=may_repeat)

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - the contract's name
        default: str,
    ) -> str:
        """Ask people; return "Allow", or "Deny" with a reason for the model. See `ApprovalSystem`.

        A failure denies, with any default.
        """
        with ErrorBoundary(log, "approval.not_asked"):
            return await self._decided(prompt, options, timeout, default)
        return "Deny: No one could be asked, so it is denied."

    async def _decided(self, prompt: str, options: list[str], timeout_s: float, default: str) -> str:
        people, call = self._people(), current_call.get()
        if people is None:
            return "Deny: No run is active, so no one can be asked."
        request = await self._request(prompt, timeout_s, default, call)
        always = next((each for each in options if each.lower() == _ALLOW_ALWAYS), "")
        if always and not request.always:  # of another hook, which remembers the answer itself
            request = replace(request, always=((_SESSION, "in this conversation, until the service restarts"),))
        if call is None:
            answer = await people.ask(request)
        else:
            with call.awaiting_others():
                answer = await people.ask(request)
            call.decision = {**(call.decision or {}), **_decision(answer)}
            if answer.allows and answer.always in _SCOPES:
                about = [self._key.agent_id, self._key.conversation_id, answer.always, answer.by[0], call.name]
                await self._rules.add(self._key, call.name, answer, _digest(request.digest, {"": about})[:_NAME_CHARS])
        if not answer.allows:
            return f"Deny: {_denial(answer)}"
        return always if answer.always == _SESSION else "Allow"

    async def _request(self, prompt: str, timeout_s: float, default: str, call: CallContext | None) -> PersonRequest:
        place = ALLOW if default == "allow" else DENY
        details = None if call is None else call.approval
        if call is None or details is None:  # by another hook
            title, _, details_text = self._without_secrets(prompt).partition("\n")
            digest = sha256(prompt.encode()).hexdigest() if call is None else _digest(call.name, call.arguments)
            return PersonRequest(
                f"{self._scope}{_about(call, prompt)}", digest, title, details_text, timeout_s=timeout_s, default=place
            )
        call.approval = None  # it is for this request only
        scopes = tuple((each, _SCOPES[each].format(instance=self._key.agent_id)) for each in details.always)
        return PersonRequest(
            f"{self._scope}{call.id}",
            _digest(call.name, call.arguments),
            f"Allow {call.name}?",
            self._without_secrets(await details.render(call.arguments)),
            details.risk,
            approvers=details.approvers,
            needed=details.needed,
            always=scopes,
            timeout_s=timeout_s,
            default=place,
        )

    async def _ask(  # noqa: PLR0913 - the parts of a question
        self,
        question: str,
        *,
        options: tuple[str, ...] = (),
        is_multiple: bool = False,
        takes_text: bool = True,
        person: str = "",
        timeout_s: float = 3600.0,
        default: str | None = None,
    ) -> str:
        """Ask a question, and return the answer as a sentence for the model."""
        people, call = self._people(), current_call.get()
        if people is None or call is None:
            return "No one can be asked now. Decide yourself, and say in your answer what you assumed."
        if person and not _PERSON.fullmatch(person):
            return f"No one was asked: {person[:40]!r} is not the id of a user, such as U012AB3CD."
        request_id = f"{self._scope}{call.id}"
        request = PersonRequest(
            request_id,
            _digest(_QUESTION, {"question": question, "options": options}),
            self._without_secrets(question),
            options=tuple(self._without_secrets(each) for each in options),
            approvers=("participants",),
            timeout_s=timeout_s,
            default=None if default is None else options.index(default),
            is_approval=False,
            is_multiple=is_multiple,
            takes_text=takes_text,
            person=person,
            asker=self._scope.rpartition("-")[0],
        )
        on_message = (lambda: people.answer_by_message(request_id)) if takes_text and not person else None
        with call.awaiting_others(on_message, await people.asked_s(request_id)):
            answer = await people.ask(request)
        call.decision = _decision(answer)
        return _answer_text(answer, options)

    async def _answer(  # noqa: PLR0913 - the parts of a question
        self,
        question: str,
        *,
        options: tuple[str, ...],
        takes_text: bool,
        person: str,
        part: str,
        timeout_s: float,
        is_multiple: bool = False,
    ) -> dict[str, Any] | None:
        """Ask one person in private; return the `chosen` options and the `text`, or `None` without an answer.

        `part` is the identity of the question within the call.
        """
        people, call = self._people(), current_call.get()
        if people is None or call is None or not _PERSON.fullmatch(person):
            return None
        request = PersonRequest(
            f"{self._scope}{call.id}:{part}",
            _digest(_QUESTION, {"question": question, "options": options}),
            self._without_secrets(question),
            options=options,
            approvers=(person,),
            timeout_s=timeout_s,
            default=None,
            is_approval=False,
            is_multiple=is_multiple,
            takes_text=takes_text,
            person=person,
        )
        with call.awaiting_others():
            answer = await people.ask(request)
        if answer.kind != "click":
            return None
        return {"chosen": [options[place] for place in answer.chosen], "text": answer.text}

    async def _connect(self, server: str, person: str, link: str, *, timeout_s: float) -> str:
        """Show one person the link of a login; return why there is none. The caller cancels it after the login.

        The call has not begun until `people.begin`: a later owner of the run makes it again.
        """
        people, call = self._people(), current_call.get()
        if people is None or call is None or not _PERSON.fullmatch(person):
            return f"No one can be asked to connect an account of '{server}'."
        request = PersonRequest(
            self._connecting(call.id),
            _digest(server, {"person": person}),
            f"Connect your account of {server}?",
            f"The agent needs it for what you asked. Only calls that you ask for use it.\n\n[Connect it here]({link})",
            options=(_CONNECTED, _NOT_CONNECTED),
            approvers=(person,),
            timeout_s=timeout_s,
            person=person,
        )
        with call.awaiting_others():
            answer = await people.ask(request)
            if answer.allows:  # the login is not complete, or its page is still open
                await asyncio.sleep(_COMPLETED_WITHIN_S)
        match answer.kind:
            case "click" if answer.allows:
                return f"The login at '{server}' was not completed."
            case "click":
                return f"The person declined to connect an account of '{server}'. Do not ask again."
            case "deadline":
                return f"No account of '{server}' was connected in time."
        return f"No account of '{server}' was connected: {answer.text}"

    async def _begin(self, server: str, person: str) -> str | None:
        """Note that a call which waited for an account begins, for good. Returns why it must not begin."""
        people, call = self._people(), current_call.get()
        if people is None or call is None or not self._is_connecting(call.id):
            return None
        begun = await people.start(self._connecting(call.id), _digest(server, {"person": person}))
        return begun and f"The call to '{server}' waited for an account: {begun}"


def _about(call: CallContext | None, prompt: str) -> str:
    """Return the id of a request. Only a request before a call begins is about the call: then it may be repeated."""
    if call is not None and not call.has_begun:
        return call.id
    subject = "hook" if call is None else f"{call.id}:result"
    # Each request gets an answer of its own: no other one is for the same purpose.
    return f"{subject}:{sha256(prompt.encode()).hexdigest()[:_NAME_CHARS]}:{uuid4().hex}"


def _digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest of exactly this call."""
    return sha256(json.dumps([tool, arguments], sort_keys=True, default=str).encode()).hexdigest()


def _decision(answer: PersonAnswer) -> dict[str, Any]:
    """Return how a request ended, for the log."""
    found = {"answer": answer.kind, "chosen": list(answer.chosen), "by": list(answer.by), "at_s": round(answer.at_s, 3)}
    return found | ({"always": answer.always} if answer.always else {})


def _denial(answer: PersonAnswer) -> str:
    match answer.kind:
        case "click":
            by = " and ".join(answer.names) or "A person"
            return f"{by} denied it" + (f", and says: {answer.text}" if answer.text else ".")
        case "deadline":
            return "No one answered in time, so it is denied. Do not repeat it; say what you would have done."
    return f"It was not approved: {answer.text}"


def _answer_text(answer: PersonAnswer, options: tuple[str, ...]) -> str:
    by, chosen = " and ".join(answer.names), ", ".join(options[place] for place in answer.chosen)
    match answer.kind:
        case "message":
            return "They answered with a message, which follows."
        case "deadline" if chosen:
            return f"No one answered in time. By default: {chosen}"
        case "deadline":
            return "No one answered in time. Decide yourself, and say in your answer what you assumed."
        case "void":
            return f"There is no answer: {answer.text}"
    return f"{by} answered: {chosen or answer.text}" + (f" ({answer.text})" if chosen and answer.text else "")
