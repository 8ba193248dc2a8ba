"""Hooks of all tempers, and an ear that hears every event first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.events import ALL_EVENTS
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from simulated.invariants.requests import PASSING
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel import HookRegistry
    from simulated.invariants import Invariants
    from simulated.scenario import Scenario

    Data = dict[str, Any]
    Temper = Callable[["Hook", str, Data], Awaitable[Any]]

_INJECTION_APPLIED = "injection:applied"
_OF_THE_LOOP = (_INJECTION_APPLIED, "provider:fallback")
_ASKING = ("prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post", "tool:error")
_TELLING = (
    "execution:start",
    _INJECTION_APPLIED,
    "provider:error",
    "provider:retry",
    "provider:fallback",
    "cancel:requested",
    "cancel:completed",
    "execution:end",
    "orchestrator:complete",
    "context:pre_compact",
    "context:post_compact",
)


class Ear:
    """Hears every event before anybody else does, and wishes nothing."""

    def __init__(self, scene: Scenario, judges: Invariants) -> None:
        self._scene = scene
        self._judges = judges

    def listen(self, hooks: HookRegistry) -> None:
        for event in (*ALL_EVENTS, *_OF_THE_LOOP):
            hooks.register(event, self, priority=-1000, name="ear")

    async def __call__(self, event: str, data: Data) -> HookResult:
        self._note_stage(event)
        what = data.get("tool_name") or data.get("status") or ""
        self._scene.tell("hook", f"{event} {what}".rstrip())
        self._judges.heard(event, data)
        return HookResult()

    def _note_stage(self, event: str) -> None:
        match event:
            case "execution:end":
                self._scene.finishing = True
                self._scene.turn("retrying", on=False)
            case "context:pre_compact":
                self._scene.count("compaction")
                self._scene.turn("compacting", on=True)
            case "context:post_compact":
                self._scene.turn("compacting", on=False)
            case "provider:retry":
                self._scene.turn("retrying", on=True)


class Hook:
    """A hook that does on an event what its temper says, now and then."""

    def __init__(self, temper: Temper, scene: Scenario, judges: Invariants, often: float) -> None:
        self.scene = scene
        self.judges = judges
        self._temper = temper
        self._often = often

    async def __call__(self, event: str, data: Data) -> Any:
        scene, name = self.scene, self._temper.__name__.strip("_")
        if scene.calm or scene.chance.random() > self._often:
            return HookResult()
        scene.count(f"hook {name}")
        with scene.at("in a hook"):
            scene.tell("hook", f"{event}: a hook goes {name}")
            return await self._temper(self, event, data)


async def _deny(_hook: Hook, _event: str, _data: Data) -> Any:
    return HookResult(action="deny", reason="no")


async def _modify(_hook: Hook, event: str, data: Data) -> Any:
    return HookResult(action="modify", data=_modified(event, data))


async def _modify_to_nonsense(_hook: Hook, _event: str, data: Data) -> Any:
    return HookResult(action="modify", data={key: [7] for key in data})


async def _inject(hook: Hook, event: str, _data: Data) -> Any:
    roles = (
        ["system", "user", "assistant"] if "assistants' words from hooks" in hook.scene.features else ["system", "user"]
    )
    text = f"A hook remarks on {event}."
    return HookResult(
        action="inject_context", context_injection=text, context_injection_role=hook.scene.chance.choice(roles)
    )


async def _inject_in_passing(hook: Hook, event: str, _data: Data) -> Any:
    return HookResult(
        action="inject_context",
        context_injection=f"{PASSING} {event}",
        context_injection_role="user",
        ephemeral=True,
        append_to_last_tool_result=hook.scene.chance.random() < 0.5,
    )


async def _change_the_calls(hook: Hook, _event: str, data: Data) -> Any:
    """Take the last call out of an answer; its block may stay, as no provider would have it."""
    response = data["response"]
    if not getattr(response, "tool_calls", None):
        return HookResult()
    calls, content = response.tool_calls[:-1], list(response.content)
    if hook.scene.chance.random() < 0.7:
        last = max(place for place, block in enumerate(content) if isinstance(block, ToolCallBlock))
        content.pop(last)
    changed = response.model_copy(update={"content": content, "tool_calls": calls or None})
    return HookResult(action="modify", data={"response": changed})


async def _tell_the_user(_hook: Hook, _event: str, _data: Data) -> Any:
    return HookResult(user_message="Just so you know.")


async def _ask_the_user(hook: Hook, event: str, _data: Data) -> Any:
    chance = hook.scene.chance
    return HookResult(
        action="ask_user",
        approval_prompt=f"May it? ({event})",
        approval_options=["Allow", "Allow always", "Deny"],
        approval_timeout=chance.uniform(1, 20),
        approval_default=chance.choice(["allow", "deny"]),
    )


async def _raise(hook: Hook, _event: str, _data: Data) -> Any:
    raise hook.scene.chance.choice(
        [InjectedFault("the hook broke"), TimeoutError(), asyncio.CancelledError("the hook's own")]
    )


async def _talk_nonsense(hook: Hook, _event: str, _data: Data) -> Any:
    return hook.scene.chance.choice([None, "deny", {"action": "deny"}, 7])


async def _dawdle(hook: Hook, event: str, data: Data) -> Any:
    await asyncio.sleep(hook.scene.some_s(0.01, 0.5, 3))
    return await hook.scene.chance.choice([_tell_the_user, _inject, _modify])(hook, event, data)


async def _hang(hook: Hook, _event: str, _data: Data) -> Any:
    await asyncio.sleep(hook.scene.some_s(100))
    return HookResult(action="deny", reason="too late")


async def _be_deaf(hook: Hook, event: str, data: Data) -> Any:
    await hook.scene.sleep_deaf(hook.scene.some_s(0.1, 3), "hook")
    return await hook.scene.chance.choice([_tell_the_user, _inject, _modify])(hook, event, data)


_BY_FEATURE: dict[str, tuple[Temper, ...]] = {
    "denying hooks": (_deny,),
    "modifying hooks": (_modify, _modify_to_nonsense, _change_the_calls),
    "injecting hooks": (_inject, _inject_in_passing),
    "broken hooks": (_raise, _talk_nonsense),
    "asking hooks": (_ask_the_user,),
    "slow hooks": (_dawdle,),
    "hanging hooks": (_hang,),
    "deaf hooks": (_be_deaf,),
}
FEATURES = tuple(_BY_FEATURE)


def hire_hooks(scene: Scenario, judges: Invariants, hooks: HookRegistry) -> None:
    """Let some of the tempers that this seed has listen to some events."""
    chance = scene.chance
    tempers = [temper for feature, some in _BY_FEATURE.items() if feature in scene.features for temper in some]
    for temper in tempers:
        asks = temper in {_deny, _modify, _modify_to_nonsense, _ask_the_user}
        events = ("provider:response",) if temper is _change_the_calls else _ASKING if asks else _ASKING + _TELLING
        for event in chance.sample(events, k=min(chance.randint(1, 3), len(events))):
            hooks.register(event, Hook(temper, scene, judges, chance.choice([0.1, 0.3, 0.6])), chance.randint(-5, 5))


def _modified(event: str, data: Data) -> Data:
    """Sensible changes of what an event carries; what another hook made nonsense of stays so."""
    if [7] in data.values() or event not in _CHANGES:
        return {}
    return _CHANGES[event](data)


def _change_answer(data: Data) -> Data:
    content = [*data["response"].content, TextBlock(text="(checked)")]
    return {"response": data["response"].model_copy(update={"content": content})}


_CHANGES: dict[str, Callable[[Data], Data]] = {
    "prompt:submit": lambda data: {"prompt": f"{data['prompt']} (checked)"},
    "provider:request": lambda data: {
        "messages": [*data["messages"], {"role": "user", "content": f"{PASSING} look twice"}]
    },
    "provider:response": _change_answer,
    "tool:pre": lambda data: {"tool_input": {**data["tool_input"], "text": "look closer"}},
    "tool:post": lambda _data: {"tool_result": ToolResult(output="changed")},
    "tool:error": lambda _data: {"tool_result": ToolResult(output="changed")},
}
