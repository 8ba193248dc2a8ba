"""A workspace with the bot in it and everything behind it, in this process; only the model is the test's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from in_process_service import serving_in_process
from pydantic import SecretStr
from tool_gate import GATED_TOOL, ToolGate

from local_slack import LocalSlack
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, ServiceConfig, WorkspaceConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from anthropic_server import AnthropicServer

    from local_slack import Message, PersonClient, Workspace

# The console's way of showing an exception takes its time on a busy machine.
_SETTLED_WITHIN_S = 30
ALPHA = PersonaConfig(name="Alpha", emoji=":owl:")


@dataclass
class ServiceFixture:
    """`tests` is where the tool `run_tests` waits, `set_up` where the set-up of a new session does."""

    slack: LocalSlack
    model: AnthropicServer
    tests: ToolGate
    set_up: ToolGate

    @property
    def ana(self) -> PersonClient:
        return self.slack.as_person("ana")

    async def ask(self, text: str = "@alpha look") -> str:
        """Begin a thread; gives its ts."""
        return await self.ana.say("general", text)

    async def posted(self, root: str, text: str) -> Message:
        return await self.slack.until(lambda ws: next((m for m in self._bots(ws, root) if text in m.text), None))

    async def reacted(self, ts: str, name: str) -> None:
        await self.slack.until(lambda ws: ws.message("general", ts).reacted(name))

    async def said(self, root: str) -> list[str]:
        """What the bot has said in a thread, once nothing runs in it any more."""

        def settled(ws: Workspace) -> list[str]:
            texts = [m.text for m in self._bots(ws, root)]
            is_busy = ws.message("general", root).reacted("hourglass_flowing_sand") or any("⚙️" in t for t in texts)
            return [] if is_busy else texts

        return await self.slack.until(settled, _SETTLED_WITHIN_S)

    def _bots(self, ws: Workspace, root: str) -> list[Message]:
        return [m for m in ws.thread(self.slack.channel("general").id, root) if m.by_bot]


@asynccontextmanager
async def service_fixture(
    model: AnthropicServer, folder: Path, people: Mapping[str, str] | None = None, **loop_options: Any
) -> AsyncIterator[ServiceFixture]:
    """The environment must lead the provider to the model. `people` are names and display names."""
    async with (
        LocalSlack(**({"people": people} if people else {})) as slack,
        ToolGate() as tests,
        ToolGate(is_open=True) as set_up,
    ):
        gates = {"port": tests.port, "mount_port": set_up.port}
        gated = ModuleConfig(module="gated-tool", source=str(GATED_TOOL), config=gates)
        loop = ModuleConfig(module="loop-interactive", config=loop_options)
        tools = (ModuleConfig(module="tool-filesystem"), gated)
        config = ServiceConfig(
            instances={"alpha": InstanceConfig(persona=ALPHA, tools=tools, orchestrator=loop)},
            workspace=WorkspaceConfig(root=folder / "files"),
            store=SecretStr(f"sqlite:{folder}/office.db"),
        )
        async with serving_in_process(slack, config):
            yield ServiceFixture(slack, model, tests, set_up)
