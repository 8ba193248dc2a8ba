"""A context that shows as many of the latest rows as fit."""

import json


def tokens(row):
    return len(json.dumps(row)) // 4 + 1


class ShortContext:
    def __init__(self, hooks):
        self.hooks = hooks
        self.messages = []

    async def add_message(self, message):
        if not message.get("role"):
            raise ValueError("Message must have 'role' field")
        self.messages.append(message)

    async def get_messages_for_request(self, token_budget=None, provider=None):
        budget = token_budget or self.budget_of(provider)
        if sum(map(tokens, self.messages)) <= budget:
            return list(self.messages)
        await self.hooks.emit("context:pre_compact", self.size(self.messages))
        view = self.compacted(budget)
        await self.hooks.emit("context:post_compact", self.size(view))
        return view

    def budget_of(self, provider):
        if provider is None:
            return 100_000
        defaults = provider.get_info().defaults
        return defaults["context_window"] - defaults["max_output_tokens"] - 1000

    def compacted(self, budget):
        system = [row for row in self.messages if row["role"] == "system"]
        rows = [row for row in self.messages if row["role"] != "system"]
        left = budget - sum(map(tokens, system))
        start = len(rows)
        while start and left >= tokens(rows[start - 1]):
            start -= 1
            left -= tokens(rows[start])
        while start < len(rows) and rows[start]["role"] == "tool":
            start += 1
        return [*system, *rows[start:]]

    def size(self, rows):
        return {"message_count": len(rows), "token_count": sum(map(tokens, rows))}

    async def get_messages(self):
        return list(self.messages)

    async def set_messages(self, messages):
        self.messages = list(messages)

    async def clear(self):
        self.messages = []


async def mount(coordinator, config):
    names = ["context:pre_compact", "context:post_compact"]
    coordinator.register_contributor("observability.events", "context-short", lambda: names)
    context = ShortContext(coordinator.hooks)
    await coordinator.mount("session", context, name="context")
    return context
