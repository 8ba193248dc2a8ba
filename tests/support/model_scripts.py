"""A model whose answers a test scripts for each agent, and a thread in which Ana talks to one."""

from __future__ import annotations

import json
from typing import Any

from anthropic_server import AnthropicServer, Block, Reply, Step, message, text

# An agent is known by the first words of its system prompt.
ROLES = ("lead", "research", "write")


def role(body: dict[str, Any]) -> str:
    return next(name for name in ROLES if f"You {name}" in json.dumps(body["system"]))


def told(body: dict[str, Any]) -> str:
    """The text of the last message of a request."""
    return json.dumps(body["messages"][-1]["content"], ensure_ascii=False)


class Scripts:
    """The answers of each agent, in order; each is a list of blocks, and then `fine`."""

    def __init__(self, model: AnthropicServer) -> None:
        self.model = model
        self.answers: dict[str, list[list[Block | Step]]] = {}
        model.otherwise = self._answer

    def of(self, name: str, *answers: list[Block | Step]) -> None:
        self.answers[name] = list(answers)

    def _answer(self, body: dict[str, Any]) -> Reply:
        left = self.answers.get(role(body))
        return message(*(left.pop(0) if left else [text("fine")]))

    def asked(self, name: str) -> list[dict[str, Any]]:
        return [body for body in self.model.bodies if role(body) == name]


class TestThread:
    """A thread that Ana begins with a message to Alpha."""

    __test__ = False

    def __init__(self, slack: Any, environment: Any) -> None:
        self.slack, self.environment, self.ana = slack, environment, slack.as_person("ana")
        self.channel = slack.channel("general").id
        self.root = ""

    async def begin(self, service: Any, say: str = "@alpha compare the two") -> None:
        await service.says("service.ready")
        await self.slack.until(lambda ws: ws.bot_online)
        self.root = await self.ana.say("general", say)

    async def say(self, words: str) -> str:
        ts: str = await self.ana.say("general", words, thread=self.root)
        return ts

    async def until_said(self, words: str) -> Any:
        return await self.slack.until(lambda _: self.environment.found(self.root, words))

    async def until_shown(self, *parts: str) -> None:
        """Wait until a message of the channel shows all these parts in its blocks."""

        def shown(workspace: Any) -> bool:
            blocks = [json.dumps(each.blocks, ensure_ascii=False) for each in workspace.messages(self.channel)]
            return any(all(part in each for part in parts) for each in blocks)

        await self.slack.until(shown)

    async def until_marked(self, ts: str, emoji: str) -> None:
        await self.slack.until(lambda ws: any(each.name == emoji for each in ws.message(self.channel, ts).reactions))

    async def until_whispered(self, words: str) -> None:
        await self.slack.until(lambda ws: any(words in each.text for each in ws.whispers(self.channel)))

    async def answered(self, words: str = "fine") -> None:
        await self.slack.until(lambda _: self.environment.said(self.root)[-1:] == [words])
