"""Hooks that deny, modify, inject, ask, fail or hang, and one that observes every event first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator_interactive.kernel import HookRegistry, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.events import ALL_EVENTS
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from simulated.simulation import InjectedError, Simulation

from .invariants import EPHEMERAL, Invariants

Data = dict[str, Any]
Behaviour = Callable[["Hook", str, Data], Awaitable[Any]]

_OF_THE_LOOP = ("injection:applied", "provider:fallback")
_MODIFIABLE = ("prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post", "tool:error")
_NOTIFICATIONS = (
    *("execution:start", "injection:applied", "provider:error", "provider:retry", "provider:fallback"),
    *("cancel:requested", "cancel:completed", "execution:end", "orchestrator:complete"),
    *("context:pre_compact", "context:post_compact"),
)


class ObserverHook:
    """Receives every event before the other hooks do, and changes nothing."""

    def __init__(self, sim: Simulation, invariants: Invariants, hooks: HookRegistry):
        self._sim = sim
        self._invariants = invariants
        for event in (*ALL_EVENTS, *_OF_THE_LOOP):
            hooks.register(event, self, priority=-1000, name="ear")

    async def __call__(self, event: str, data: Data) -> HookResult:
        sim = self._sim
        match event:
            case "execution:end":
                sim.finishing = True
                sim.turn("retrying", on=False)
            case "context:pre_compact":
                sim.count("compaction")
                sim.turn("compacting", on=True)
            case "context:post_compact":
                sim.turn("compacting", on=False)
            case "provider:retry":
                sim.turn("retrying", on=True)
        sim.log("hook", f"{event} {data.get('tool_name') or data.get('status') or ''}".rstrip())
        self._invariants.emit("hook", event, data)
        return HookResult()


class Hook:
    """A hook that sometimes reacts to an event with its behaviour."""

    def __init__(self, behaviour: Behaviour, sim: Simulation, probability: float):
        self.sim = sim
        self._behaviour = behaviour
        self._probability = probability

    async def __call__(self, event: str, data: Data) -> Any:
        sim, name = self.sim, self._behaviour.__name__.strip("_")
        if sim.calm or sim.rng.random() > self._probability:
            return HookResult()
        sim.count(f"hook {name}")
        with sim.at("in a hook"):
            sim.log("hook", f"{event}: {name}")
            return await self._behaviour(self, event, data)


async def _deny(_hook: Hook, _event: str, _data: Data) -> Any:
    return HookResult(action="deny", reason="no")


async def _modify(_hook: Hook, event: str, data: Data) -> Any:
    """Change the data of an event, unless another hook has replaced it by invalid values."""
    valid = [7] not in data.values() and event in _CHANGES
    return HookResult(action="modify", data=_CHANGES[event](data) if valid else {})


async def _modify_invalidly(_hook: Hook, _event: str, data: Data) -> Any:
    return HookResult(action="modify", data={key: [7] for key in data})


async def _inject(hook: Hook, event: str, _data: Data) -> Any:
    roles = ["system", "user", *(["assistant"] if "assistant rows from hooks" in hook.sim.features else [])]
    text = f"A hook remarks on {event}."
    role = hook.sim.rng.choice(roles)
    return HookResult(action="inject_context", context_injection=text, context_injection_role=role)


async def _inject_ephemerally(hook: Hook, event: str, _data: Data) -> Any:
    return HookResult(
        action="inject_context",
        context_injection=f"{EPHEMERAL} {event}",
        context_injection_role="user",
        ephemeral=True,
        append_to_last_tool_result=hook.sim.rng.random() < 0.5,
    )


async def _remove_the_last_call(hook: Hook, _event: str, data: Data) -> Any:
    """Remove the last call of a response; its block may stay, which no provider would send."""
    response = data["response"]
    if not getattr(response, "tool_calls", None):
        return HookResult()
    calls, content = response.tool_calls[:-1], list(response.content)
    if hook.sim.rng.random() < 0.7:
        content.pop(max(place for place, block in enumerate(content) if isinstance(block, ToolCallBlock)))
    changed = response.model_copy(update={"content": content, "tool_calls": calls or None})
    return HookResult(action="modify", data={"response": changed})


async def _notify_the_user(_hook: Hook, _event: str, _data: Data) -> Any:
    return HookResult(user_message="Just so you know.")


async def _ask_the_user(hook: Hook, event: str, _data: Data) -> Any:
    return HookResult(
        action="ask_user",
        approval_prompt=f"May it? ({event})",
        approval_options=["Allow", "Allow always", "Deny"],
        approval_timeout=hook.sim.rng.uniform(1, 20),
        approval_default=hook.sim.rng.choice(["allow", "deny"]),
    )


async def _raise(hook: Hook, _event: str, _data: Data) -> Any:
    own_cancellation = asyncio.CancelledError("the hook's own")
    raise hook.sim.rng.choice([InjectedError("the hook broke"), TimeoutError(), own_cancellation])


async def _return_an_invalid_result(hook: Hook, _event: str, _data: Data) -> Any:
    return hook.sim.rng.choice([None, "deny", {"action": "deny"}, 7])


async def _be_slow(hook: Hook, event: str, data: Data) -> Any:
    await asyncio.sleep(hook.sim.delay_s(0.01, 0.5, 3))
    return await hook.sim.rng.choice([_notify_the_user, _inject, _modify])(hook, event, data)


async def _hang(hook: Hook, _event: str, _data: Data) -> Any:
    await asyncio.sleep(hook.sim.delay_s(100))
    return HookResult(action="deny", reason="too late")


async def _ignore_cancellation(hook: Hook, event: str, data: Data) -> Any:
    await hook.sim.sleep_uncancellable(hook.sim.delay_s(0.1, 3), "hook")
    return await hook.sim.rng.choice([_notify_the_user, _inject, _modify])(hook, event, data)


def _change_response(data: Data) -> Data:
    content = [*data["response"].content, TextBlock(text="(checked)")]
    return {"response": data["response"].model_copy(update={"content": content})}


_CHANGES: dict[str, Callable[[Data], Data]] = {
    "prompt:submit": lambda data: {"prompt": f"{data['prompt']} (checked)"},
    "provider:request": lambda data: {
        "messages": [*data["messages"], {"role": "user", "content": f"{EPHEMERAL} look twice"}]
    },
    "provider:response": _change_response,
    "tool:pre": lambda data: {"tool_input": {**data["tool_input"], "text": "look closer"}},
    "tool:post": lambda _data: {"tool_result": ToolResult(output="changed")},
    "tool:error": lambda _data: {"tool_result": ToolResult(output="changed")},
}
_BY_FEATURE: dict[str, tuple[Behaviour, ...]] = {
    "denying hooks": (_deny,),
    "modifying hooks": (_modify, _modify_invalidly, _remove_the_last_call),
    "injecting hooks": (_inject, _inject_ephemerally),
    "broken hooks": (_raise, _return_an_invalid_result),
    "approval hooks": (_ask_the_user,),
    "slow hooks": (_be_slow,),
    "hanging hooks": (_hang,),
    "uncancellable hooks": (_ignore_cancellation,),
}
FEATURES = tuple(_BY_FEATURE)


def register_hooks(sim: Simulation, hooks: HookRegistry) -> None:
    """Register the behaviours of this seed for some events each."""
    rng = sim.rng
    behaviours = [each for feature, some in _BY_FEATURE.items() if feature in sim.features for each in some]
    for behaviour in behaviours:
        events = _MODIFIABLE + _NOTIFICATIONS
        if behaviour in {_deny, _modify, _modify_invalidly, _ask_the_user}:
            events = _MODIFIABLE
        elif behaviour is _remove_the_last_call:
            events = ("provider:response",)
        for event in rng.sample(events, k=min(rng.randint(1, 3), len(events))):
            hooks.register(event, Hook(behaviour, sim, rng.choice([0.1, 0.3, 0.6])), rng.randint(-5, 5))
