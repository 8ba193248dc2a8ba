"""A context written against amplifier_core: it emits its events, and asks its provider for the window."""

import json

from amplifier_core.events import CONTEXT_POST_COMPACT, CONTEXT_PRE_COMPACT


class ForeignContext:
    def __init__(self, hooks):
        self.hooks = hooks
        self.messages = []

    async def add_message(self, message):
        if "role" not in message:
            raise ValueError("Message must have 'role' field")
        self.messages.append(message)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        budget = token_budget
        if budget is None and provider is not None:
            defaults = provider.get_info().defaults or {}
            budget = defaults.get("context_window", 0) - defaults.get("max_output_tokens", 0) - 1000
        rows = list(self.messages)
        if budget is None or self.count(rows) <= budget:
            return rows
        await self.hooks.emit(CONTEXT_PRE_COMPACT, {"message_count": len(rows), "token_count": self.count(rows)})
        view = self.recent(rows, budget)
        await self.hooks.emit(CONTEXT_POST_COMPACT, {"message_count": len(view), "token_count": self.count(view)})
        return view

    def recent(self, rows, budget):
        system = [row for row in rows if row["role"] == "system"]
        rest = [row for row in rows if row["role"] != "system"]
        starts = [i for i, row in enumerate(rest) if row["role"] == "user"]
        for start in starts:
            if self.count([*system, *rest[start:]]) <= budget:
                return [*system, *rest[start:]]
        return [*system, *rest[starts[-1] :]]

    def count(self, rows):
        return sum(len(json.dumps(row)) for row in rows) // 4

    async def get_messages(self):
        return list(self.messages)

    async def set_messages(self, messages):
        self.messages = list(messages)

    async def clear(self):
        self.messages = []


async def mount(coordinator, config=None):
    context = ForeignContext(coordinator.hooks)
    names = [CONTEXT_PRE_COMPACT, CONTEXT_POST_COMPACT]
    coordinator.register_contributor("observability.events", "context-foreign", lambda: names)
    await coordinator.mount("context", context)
