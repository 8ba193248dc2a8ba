"""A hook written against amplifier_core; it counts on nothing, since there events come as JSON."""

from amplifier_core import HookResult
from amplifier_core.events import TOOL_POST, TOOL_PRE


class Audit:
    def __init__(self, words):
        self.words = words
        self.seen = []

    async def before(self, event, data):
        self.seen.append(str(data.get("tool_name")))
        if data.get("tool_name") in self.words:
            return HookResult(action="ask_user", approval_prompt="Run it?", approval_options=["Allow", "Deny"])
        return HookResult(action="continue")

    async def after(self, event, data):
        return HookResult(action="inject_context", context_injection=f"Ran {data.get('tool_name')}.", ephemeral=True)


async def mount(coordinator, config=None):
    audit = Audit((config or {}).get("words", ["write_file"]))
    unregister = [
        coordinator.hooks.register(TOOL_PRE, audit.before, priority=10, name="audit"),
        coordinator.hooks.register(TOOL_POST, audit.after, priority=20, name="audit"),
    ]

    def cleanup():
        for each in unregister:
            each()

    return cleanup
