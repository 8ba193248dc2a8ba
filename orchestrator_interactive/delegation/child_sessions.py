"""Child sessions: sub-agents of a session, each with a merged configuration and a log of its own.

The log of a child belongs to the conversation of its parent, under `CONVERSATION/ID`. A child whose process died
continues from its log when it is spawned again under the same id.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.plan import merge_configs
from orchestrator_interactive.kernel.tool_support import CALLERS, current_call
from orchestrator_interactive.loop.injection_queue import InjectionError, RunFinished
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.rows import delivered_ids_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.contracts.protocols import ProgressCallback
    from orchestrator_interactive.loop.injection_queue import Injection

# Called with the session of a child before its modules are mounted, and with its id.
Prepare = Callable[[AmplifierSession, str], Awaitable[None]]

# The capability of a session that is its `ChildSessions`.
CHILDREN = "session.children"
# Levels of children below the first session.
MOST_LEVELS = 2
# Parts of an agent's configuration that are not parts of a mount plan.
_OWN = ("description", "instructions", "replace")
_CONTEXTS = ("context-simple", "context-stack")
_SHARED = ("interactions.store", "secrets.filter")
# The option that names the model, where it is not `model`.
_MODEL = {"provider-openai": "default_model"}
_ADDRESS = re.compile(r"@?([\w-]+)[:,]?\s+(?=\S)")


@dataclass(slots=True)
class _Child:
    agent: str
    session: AmplifierSession
    children: ChildSessions
    offered: dict[str, Injection] = field(default_factory=dict)  # messages of people, by id
    ids: list[str] = field(default_factory=list)  # of the messages that it has read
    end: dict[str, Any] = field(default_factory=dict)  # data of its `complete` event

    def capability(self, name: str) -> Any:
        return self.session.coordinator.get_capability(name)


class ChildSessions:
    """Spawns and resumes the children of one session.

    Args:
        parent: the session.
        base: configuration that agents are merged into; `None`: the parent's.
        prepare: see `Prepare`.
        level: number of sessions above the parent.
    """

    def __init__(
        self,
        parent: AmplifierSession,
        base: Mapping[str, Any] | None = None,
        prepare: Prepare | None = None,
        level: int = 0,
    ) -> None:
        self._parent = parent
        self._base = dict(parent.config if base is None else base)
        self._prepare = prepare
        self._level = level
        self._live: dict[str, _Child] = {}
        # The ids of the children that are at work, from the call to the end of the session.
        self._begun: set[str] = set()
        # The agents of the children that are about to work, by the child's id, and the messages that wait for them.
        self._expected: dict[str, str] = {}
        self._held: dict[str, Injection] = {}
        # Receives the progress of the children; see `_on_progress`. `None`: no listener.
        self.on_progress: ProgressCallback | None = None

    def register(self) -> None:
        """Register the capabilities `session.spawn`, `session.resume`, `agents.list` and `agents.get`."""
        for name, value in {
            "session.spawn": self.spawn,
            "session.resume": self.resume,
            CHILDREN: self,
            "agents.list": lambda: list(self._agents),
            "agents.get": self._agents.get,
            "self_delegation_depth": self._level,
        }.items():
            self._parent.coordinator.register_capability(name, value)

    @property
    def _agents(self) -> dict[str, Any]:
        return dict(self._base.get("agents") or {})

    async def spawn(  # noqa: PLR0913 - the parameters of the capability in amplifier-foundation
        self,
        agent_name: str,
        instruction: str,
        parent_session: AmplifierSession | None = None,  # noqa: ARG002 - it is this one's parent
        agent_configs: Mapping[str, Mapping[str, Any]] | None = None,
        sub_session_id: str | None = None,
        *,
        tool_inheritance: Mapping[str, Any] | None = None,
        hook_inheritance: Mapping[str, Any] | None = None,
        orchestrator_config: Mapping[str, Any] | None = None,
        provider_preferences: list[Any] | None = None,
        message_id: str | None = None,
        asked_by: str | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Let an agent carry out an instruction in a child session.

        Spawning a child again whose `message_id` is in its log continues it, or returns its answer.

        Args:
            agent_name: name of an agent in `agents` of the mount plan; `self`: the parent's own configuration.
            instruction: the prompt of the child.
            parent_session: as in amplifier-foundation; it has no effect.
            agent_configs: agents by name, in place of the mount plan's.
            sub_session_id: id of the child, letters, digits, `-` and `_`. Default: a new one.
            tool_inheritance: `{"exclude_tools": […]}` or `{"inherit_tools": […]}`, names of modules.
            hook_inheritance: `{"exclude_hooks": […]}` or `{"inherit_hooks": […]}`.
            orchestrator_config: options of the orchestrator.
            provider_preferences: the first one of `{"provider": …, "model": …}` that the child has comes first.
            message_id: identity of the instruction.
            asked_by: ref of the request in the parent's log.

        Returns:
            `output` (the answer, or why the model refused), `session_id`, `status` (success, incomplete, cancelled,
            suspended), `turn_count` and `metadata`: `agent`, `usage`, and the ids of the messages of people that it has
            `read`.

        Raises:
            ValueError: there is no such agent, or the children are too deep; the message contains a remedy.
        """
        agents = dict(self._agents if agent_configs is None else agent_configs)
        if agent_name != "self" and agent_name not in agents:
            known = ", ".join(sorted(agents)) or "none; use 'self'"
            raise ValueError(f"There is no agent '{agent_name}'. Agents: {known}.")
        if self._level >= MOST_LEVELS:
            raise ValueError(f"Sub-agents work at most {MOST_LEVELS} levels deep: do this yourself.")
        child_id = sub_session_id or f"{agent_name}-{uuid4().hex[:8]}"
        config = child_config(
            self._base,
            agents.get(agent_name, {}),
            {"tools": tool_inheritance or {}, "hooks": hook_inheritance or {}},
            orchestrator_config or {},
            provider_preferences or [],
        )
        return await self._run(child_id, agent_name, config, instruction, message_id or uuid4().hex, asked_by)

    async def resume(
        self, sub_session_id: str, instruction: str, *, message_id: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Let the agent of an earlier child carry out a further instruction; see `spawn`."""
        agent, _, _ = sub_session_id.rpartition("-")
        return await self.spawn(agent, instruction, sub_session_id=sub_session_id, message_id=message_id, **options)

    async def begin_run(self) -> None:
        """Expect the agents whose requests are open in the log of the parent: a resumed run spawns them again."""
        self._held.clear()
        stack: InteractionStack | None = self._parent.coordinator.get_capability("interactions.stack")
        open_calls = await stack.open_calls() if stack is not None else ()
        ids = [each.id.partition("/")[0] for each in open_calls]
        self._expected = {child_id: child_id.rpartition("-")[0].lower() for child_id in ids}

    def inject(self, injection: Injection) -> bool:
        """Inject a message that begins with the name of a child, such as `@researcher …`, into its loop.

        Returns False if it is for the parent.

        Raises:
            RunFinished, InjectionQueueFull, ValueError: as in `inject_message`.
        """
        text = injection.text.removeprefix("!")
        if (match := _ADDRESS.match(text)) is None:
            return False
        for child in reversed(self._live.values()):
            if child.agent.lower() == match[1].lower() and (offer := child.capability("orchestrator.inject_message")):
                with suppress(RunFinished):
                    offer(injection)
                    child.offered[injection.id] = injection
                    return True
            if child.children.inject(injection):
                return True
        if match[1].lower() in self._expected.values():
            self._held[injection.id] = injection
            return True
        return False

    def edit(self, message_id: str, text: str) -> bool:
        """Replace the text of a message that a child has not read. Returns False if no child has it.

        Raises:
            ValueError: the text is blank.
        """
        if message_id in self._held:
            self._held[message_id] = replace(self._held[message_id], text=text)
            return True
        for child in self._live.values():
            if message_id in child.offered and child.capability("orchestrator.edit_message")(message_id, text):
                child.offered[message_id] = replace(child.offered[message_id], text=text)
                return True
        return any(child.children.edit(message_id, text) for child in self._live.values())

    def withdraw(self, message_id: str) -> bool:
        """Withdraw a message that a child has not read. Returns False if no child has it."""
        if self._held.pop(message_id, None) is not None:
            return True
        for child in self._live.values():
            if message_id in child.offered and child.capability("orchestrator.withdraw_message")(message_id):
                del child.offered[message_id]
                return True
        return any(child.children.withdraw(message_id) for child in self._live.values())

    def stop(self, agent: str, *, immediate: bool = False) -> bool:
        """Stop the live children of this name, or with this id; return whether that changed anything."""
        changed = False
        for child_id, child in list(self._live.items()):
            if agent.lower() in (child.agent.lower(), child_id.lower()):
                token = child.session.coordinator.cancellation
                changed |= token.request_immediate() if immediate else token.request_graceful()
            changed |= child.children.stop(agent, immediate=immediate)
        return changed

    def suspend(self) -> None:
        """End the children at their next boundary; spawning them again continues them."""
        for child in list(self._live.values()):
            child.children.suspend()
            if suspend := child.capability("orchestrator.suspend"):
                suspend()

    async def _run(  # noqa: PLR0913, PLR0917 - the parts of a child
        self,
        child_id: str,
        agent: str,
        config: dict[str, Any],
        instruction: str,
        message_id: str,
        asked_by: str | None,
    ) -> dict[str, Any]:
        if child_id in self._begun:
            raise ValueError(f"The agent '{child_id}' is at work: wait for it, or write to it by its name.")
        context, stack = config["session"]["context"], self._parent.coordinator.get_capability("interactions.stack")
        if context["module"] == "context-stack" and stack is not None:
            context["config"] |= {"conversation_id": f"{stack.key.conversation_id}/{child_id}", "agent_id": agent}
            context["config"] |= {} if asked_by is None else {"asked_by": asked_by}
        parent = self._parent.coordinator
        session = AmplifierSession(
            config,
            session_id=f"{self._parent.session_id}/{child_id}",
            parent_id=self._parent.session_id,
            approval_system=parent.approval_system,
            display_system=parent.display_system,
        )
        for name in _SHARED:
            session.coordinator.register_capability(name, parent.get_capability(name))
        if (call := current_call.get()) is not None:
            session.coordinator.register_capability(CALLERS, call.authors)
        if (sources := parent.get("module-source-resolver")) is not None:
            session.coordinator.mount("module-source-resolver", sources)
        child = _Child(agent, session, ChildSessions(session, self._base, self._prepare, self._level + 1))
        child.children.register()
        child.children.on_progress = self.on_progress
        self._expected[child_id] = agent.lower()
        self._begun.add(child_id)
        async with AsyncExitStack() as ending:
            ending.callback(self._begun.discard, child_id)
            ending.callback(self._release_held, child_id)  # if it never begins
            if self._prepare is not None:
                await self._prepare(session, child_id)
            await ending.enter_async_context(session)
            own = session.coordinator.get_capability("interactions.stack")
            if own is not None and stack is not None and stack.fencing_token is not None:
                await own.fence(stack.fencing_token)
            self._live[child_id] = child
            ending.callback(self._live.pop, child_id, None)
            token = session.coordinator.cancellation
            parent.cancellation.register_child(token)
            ending.callback(parent.cancellation.unregister_child, token)
            answer = await self._answer(child_id, child, instruction, message_id)
        end = child.end
        return {
            "output": answer or str(end.get("detail") or ""),
            "session_id": child_id,
            "status": end.get("status", "success"),
            "turn_count": end.get("iterations", 1),
            "metadata": {"agent": agent, "usage": end.get("usage") or {}, "read": child.ids},
        }

    async def _answer(self, child_id: str, child: _Child, instruction: str, message_id: str) -> str:
        """Run the child and return its answer. If the caller is cancelled, suspend the child, unless it is stopped."""
        session = child.session

        async def progress(event: str, data: dict[str, Any]) -> None:
            await self._on_progress(child_id, child, event, data)

        rows = await session.coordinator.get("context").get_messages()
        is_known = any(message_id in delivered_ids_in(row) for row in rows)
        child.ids += [each for row in rows for each in delivered_ids_in(row) if each != message_id]
        if is_known and hasattr(session.coordinator.get("orchestrator"), "resume"):
            work = session.resume(on_progress=progress)
        else:
            work = session.execute(instruction, message_id=message_id, on_progress=progress)
        working = CancellableTask(work)

        def suspend() -> None:
            if not session.coordinator.cancellation.is_cancelled:
                child.children.suspend()
                if suspend := child.capability("orchestrator.suspend"):
                    suspend()
            working.cancel(grace_s=None)

        try:
            await working.wait(suspend)
            return working.result()
        finally:
            self._hand_back(child)
            if (call := current_call.get()) is not None:
                call.usage = child.end.get("usage")
            await self._show(child_id, child, child.end.get("status", "error"))

    def _release_held(self, child_id: str) -> None:
        """Give a child the messages that waited for it; if it is not there, its parent gets them."""
        self._expected.pop(child_id, None)
        held, self._held = self._held, {}
        for injection in held.values():
            if not self.inject(injection):
                self._to_parent(injection)

    def _to_parent(self, injection: Injection) -> None:
        offer: Any = self._parent.coordinator.get_capability("orchestrator.inject_message")
        with suppress(InjectionError):  # its run has ended: the message is for the next one
            offer(injection)

    def _hand_back(self, child: _Child) -> None:
        """Give the messages that a child has not read to the parent's loop; if that has ended, to the next run."""
        receipts, withdraw = map(child.capability, ("orchestrator.receipts", "orchestrator.withdraw_message"))
        for receipt in receipts() if receipts and withdraw else ():
            if receipt.state == "waiting" and withdraw(receipt.id) and receipt.id in child.offered:
                self._to_parent(child.offered[receipt.id])

    async def _on_progress(self, child_id: str, child: _Child, event: str, data: dict[str, Any]) -> None:
        """Follow a child. The parent's listener gets `agent` events, and `injection:applied` as its own.

        `agent`: the child's `id` and `name`, its `parent` (id of the child above it, or blank), its current step
        (`text`), and its `state`: running, or as of `complete`.
        """
        match event:
            case "executing":
                self._release_held(child_id)
            case "tool:start":
                await self._show(child_id, child, "running", str(data.get("label") or data["tool"]))
            case "thinking":
                await self._show(child_id, child, "running")
            case "injection:applied":
                child.ids += data.get("ids", ())
                if self.on_progress is not None:
                    await self.on_progress(event, data)
            case "complete":
                child.end = data

    async def _show(self, child_id: str, child: _Child, state: str, text: str = "") -> None:
        if self.on_progress is not None:
            _, _, above = self._parent.session_id.rpartition("/") if self._level else ("", "", "")
            shown = {"id": child_id, "name": child.agent, "parent": above, "text": text, "state": state}
            await self.on_progress("agent", shown)


def child_config(
    base: Mapping[str, Any],
    agent: Mapping[str, Any],
    inheritance: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    orchestrator_config: Mapping[str, Any] = MappingProxyType({}),
    preferences: Sequence[Any] = (),
) -> dict[str, Any]:
    """Return the mount plan of a child: an agent, merged into the base.

    `replace` of the agent names lists (`providers`, `tools`, `hooks`) that replace the lists of the base. The
    other parameters are as in `ChildSessions.spawn`.
    """
    config = merge_configs(base, {name: [] for name in agent.get("replace", ())})
    for part, rule in inheritance.items():
        config[part] = [each for each in config.get(part) or () if _is_inherited(each, part, rule)]
    config = merge_configs(config, {name: value for name, value in agent.items() if name not in _OWN})
    session = config.setdefault("session", {})
    session["orchestrator"] = _with_options(session["orchestrator"], orchestrator_config)
    config["providers"] = _preferred(config.get("providers") or [], preferences)
    context = session["context"] = _with_options(session["context"], {})
    if context["module"] in _CONTEXTS and agent.get("instructions"):
        context["config"]["system_prompt"] = agent["instructions"]
    return config


def _with_options(module: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"module": module} if isinstance(module, str) else dict(module)
    return {**entry, "config": {**(entry.get("config") or {}), **options}}


def _is_inherited(entry: Any, part: str, rule: Mapping[str, Any]) -> bool:
    module = entry if isinstance(entry, str) else entry["module"]
    only = rule.get(f"inherit_{part}")
    return module not in (rule.get(f"exclude_{part}") or ()) and (only is None or module in only)


def _preferred(providers: list[Any], preferences: Sequence[Any]) -> list[Any]:
    """Return the providers, the first preferred one in front, with its model."""
    for each in preferences:
        name, model = (each.get(key) if isinstance(each, dict) else getattr(each, key) for key in ("provider", "model"))
        for provider in providers:
            module = provider if isinstance(provider, str) else provider["module"]
            own_name = None if isinstance(provider, str) else provider.get("instance_id")
            if own_name == name if own_name else module in (name, f"provider-{name}"):
                first = _with_options(provider, {_MODEL.get(module, "model"): model} if model else {})
                return [first, *(other for other in providers if other is not provider)]
    return providers
