"""A workspace with the bot and the whole service in this process; the test scripts the model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from anthropic_server import AnthropicServer
from pydantic import SecretStr
from tool_gate import GATED_TOOL, ToolGate

from connector import Instance, Persona, SlackCredentials, SocketTransport
from connector.app import ConnectorParts, connected
from connector.protocols import SlackOptions
from connector.setup import manifest
from connector.workspaces import WorkspaceSettings
from local_slack import LocalSlack, PersonClient, Workspace, WorkspaceMessage
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import (
    Environment,
    InstanceConfig,
    ModuleConfig,
    PersonaConfig,
    ServiceConfig,
    WorkspaceConfig,
)
from service.config.slack import SlackConfig, command_of
from service.notes import Notes
from service.runs import StoredRuns
from service.sessions.host import NOTIFY, LocalHost
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_run_store

# Formatting an exception on the console is slow on a busy machine.
_SETTLED_WITHIN_S = 60.0
ALPHA = PersonaConfig(name="Alpha", emoji=":owl:")


@asynccontextmanager
async def serving_in_process(slack: LocalSlack, config: ServiceConfig, **parts: Any) -> AsyncIterator[None]:
    """Serve a workspace with the agents of a configuration, and with further `ConnectorParts`.

    The environment has the URL of the model, and its API: `PROVIDER=openai` runs the tests with `provider-openai`.
    """
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    settings = WorkspaceSettings(
        [Instance(name, Persona(one.persona.name, one.persona.emoji)) for name, one in config.instances.items()],
        options=SlackOptions(
            dm_threads=config.slack.dm == "threads",
            command=command_of(config.slack, next(iter(config.instances))),
            feedback=config.slack.feedback,
        ),
    )
    url, patience = config.store.get_secret_value(), StoreRetryPolicy()
    async with (
        aclosing(await open_store(url)) as logs,
        aclosing(await open_run_store(url)) as store,
        StoredRuns(store, uuid4().hex, config.lease_s, patience) as runs,
        InProcessSessionManager(
            config.instances,
            Environment.from_environ().default_provider,
            Workspaces(config.workspace),
            retrying(logs, patience),
            host=LocalHost({NOTIFY: (notes := Notes(runs.admit, tuple(config.instances))).of_session}),
        ) as sessions,
        connected(
            access,
            ConnectorParts(
                sessions=sessions,
                runs=runs,
                settings_of=lambda _: settings,
                shutdown_grace_s=config.shutdown_grace_s,
                history=sessions.history,
                **parts,
            ),
        ),
    ):
        with notes.offered():
            await slack.until(lambda ws: ws.bot_online)
            yield


@dataclass
class ServiceFixture:
    """`tests` holds calls of the tool `run_tests`, `set_up` the set-up of new sessions."""

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

    async def posted(self, root: str, text: str) -> WorkspaceMessage:
        return await self.slack.until(lambda ws: next((m for m in self._bots(ws, root) if text in m.text), None))

    async def reacted(self, ts: str, name: str) -> None:
        await self.slack.until(lambda ws: ws.message("general", ts).reacted(name))

    async def said(self, root: str) -> list[str]:
        """Return the bot's texts in a thread once no run is active."""

        def settled(ws: Workspace) -> list[str]:
            texts = [m.text for m in self._bots(ws, root)]
            is_busy = ws.message("general", root).reacted("hourglass_flowing_sand") or any("⚙️" in t for t in texts)
            return [] if is_busy else texts

        return await self.slack.until(settled, _SETTLED_WITHIN_S)

    def _bots(self, ws: Workspace, root: str) -> list[WorkspaceMessage]:
        return [m for m in ws.thread(self.slack.channel("general").id, root) if m.by_bot]


@asynccontextmanager
async def service_fixture(
    model: AnthropicServer,
    folder: Path,
    people: Mapping[str, str] | None = None,
    orchestrator: ModuleConfig | None = None,
    slack_config: SlackConfig = SlackConfig(),  # noqa: B008 - it is frozen
    **loop_options: Any,
) -> AsyncIterator[ServiceFixture]:
    """The environment must have the URL of the model. `people` are names and display names."""
    app = manifest([ALPHA.name], command=command_of(slack_config, "alpha"))
    async with (
        LocalSlack(manifest=app, **({"people": people} if people else {})) as slack,
        ToolGate() as tests,
        ToolGate(is_open=True) as set_up,
    ):
        gates = {"port": tests.port, "mount_port": set_up.port}
        gated = ModuleConfig(module="gated-tool", source=str(GATED_TOOL), config=gates)
        loop = orchestrator or ModuleConfig(module="loop-interactive", config=loop_options)
        tools = (ModuleConfig(module="tool-filesystem"), gated)
        config = ServiceConfig(
            instances={"alpha": InstanceConfig(persona=ALPHA, tools=tools, orchestrator=loop)},
            workspace=WorkspaceConfig(root=folder / "files"),
            slack=slack_config,
            store=SecretStr(f"sqlite:{folder}/office.db"),
        )
        async with serving_in_process(slack, config):
            yield ServiceFixture(slack, model, tests, set_up)
