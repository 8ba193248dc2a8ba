"""A hook that guards a folder, and that remarks on failures."""

from orchestrator_interactive.kernel.contracts.models import HookResult


async def guard(event, data):
    given = data.get("tool_input")
    path = given.get("path") if isinstance(given, dict) else None
    if isinstance(path, str) and path.startswith("/etc"):
        return HookResult(action="deny", reason="Not in /etc.")
    return HookResult()


class Remark:
    def __init__(self, text):
        self.text = text

    async def __call__(self, event, data):
        return HookResult(action="inject_context", context_injection=self.text)


async def mount(coordinator, config):
    handlers = [
        coordinator.hooks.register("tool:pre", guard, priority=20, name="guard"),
        coordinator.hooks.register("tool:post", guard, priority=20, name="guard"),
        coordinator.hooks.register("tool:error", Remark(config.get("text", "It failed.")), priority=50, name="remark"),
    ]

    def unregister():
        for each in handlers:
            each()

    return unregister
