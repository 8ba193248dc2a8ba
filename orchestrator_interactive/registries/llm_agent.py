"""Agents driven by a language model: each message is a run in a new session over the conversation's log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from orchestrator_interactive.interactions.render_policies import UnknownPolicy, policy_named
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.registries.agent_calls import Reflection, is_reflecting
from orchestrator_interactive.registries.schemas import AgentStopped, RegistryError
from orchestrator_interactive.registries.templates import TemplateError, TemplateManager
from orchestrator_interactive.registries.tools import mount_tools, tool_registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.kernel.cancellation import CancellationToken
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.registries.agents import AgentRegistry
    from orchestrator_interactive.registries.schemas import LLMAgentConfig
    from orchestrator_interactive.registries.tools import ToolRegistry

# Maps the name of a model to a provider, or to the mount plan entry of one.
ProviderChoice = Callable[[str], Provider | dict[str, Any]]

PROVIDERS: dict[str, ProviderChoice] = {
    "anthropic": lambda model: {"module": "provider-anthropic", "config": {"model": model}},
    "openai": lambda model: {"module": "provider-openai", "config": {"default_model": model}},
    "demo": lambda _model: {"module": "provider-demo"},
}
# The provider for sessions without a provider entry of their own: it needs no key.
_KEYLESS = "demo"
# The hooks of a host that its agents have too, with the capabilities that they and the loop use for them.
_HOOKS = ("hooks-approval", "hooks-budget")
_SHARED = (
    "secrets.filter",
    "approvals.facts",
    "approvals.always",
    "approvals.start_call",
    "budget.reserve",
    "budget.settle",
)


@dataclass(frozen=True)
class LLMAgents:
    """Creates agents from their configurations: the `agent_factory` of an `AgentRegistry`.

    Args:
        store: log store of the conversations.
        tools: registry of the agents' tools.
        providers: providers in addition to `PROVIDERS`, by their prefix in `llm_model`.
        templates: templates for `behavior_template`.
        reflection_timeout_s: time limit of one reflection, in seconds.
        host: the session that the agents work for. An agent without `llm_model` uses its providers; any other agent
            uses the options of the host's provider with that prefix. The host's budgets and approvals are theirs too.
    """

    store: LogStore
    tools: ToolRegistry = tool_registry
    providers: Mapping[str, ProviderChoice] = field(default_factory=dict)
    templates: TemplateManager = field(default_factory=TemplateManager)
    reflection_timeout_s: float = 30.0
    host: ModuleCoordinator | None = None

    def __call__(self, config: LLMAgentConfig, registry: AgentRegistry) -> LLMAgent:
        """Create the agent of a configuration.

        Raises:
            RegistryError: its provider, a tool, its template or its render policy is unknown.
        """
        prefix, known = config.llm_model.partition("/")[0], {**PROVIDERS, **self.providers}
        if prefix not in known:
            raise RegistryError(
                f"There is no provider '{prefix}' for the model '{config.llm_model}'. There are: "
                f"{', '.join(sorted(known))}; use one from this list, or add another with `providers`."
            )
        if not self._has_provider(config, prefix):
            raise RegistryError(
                f"Agent '{config.id}': the model '{config.llm_model}' needs the provider 'provider-{prefix}': add "
                "that to the instance's `providers`, or remove `llm_model` to use the instance's model."
            )
        for name in config.tools:
            self.tools.get_tool_by_name(name)
        try:
            self.templates.check(config.behavior_template or "")
            policy_named(config.render_policy or "default")
        except (TemplateError, UnknownPolicy) as e:
            raise RegistryError(f"Agent '{config.id}': {e}") from e
        return LLMAgent(config, registry, self)

    @asynccontextmanager
    async def session(
        self, config: LLMAgentConfig, conversation_id: str, asked_by: str | None
    ) -> AsyncIterator[AmplifierSession]:
        """Open a session with the agent's log, provider, tools and rendered template."""
        providers = self._providers(config)
        planned = [each for each in providers if isinstance(each, dict)]
        context = {
            "conversation_id": conversation_id,
            "agent_id": config.id,
            "asked_by": asked_by,
            "render_policy": config.render_policy,
            "system_prompt": self._instructions(config),
        }
        options = {name: value for name, value in context.items() if value is not None}
        main = {"orchestrator": "loop-interactive", "context": {"module": "context-stack", "config": options}}
        plan = {"session": main, "providers": planned, "hooks": self._hooks()}
        parent_id = self.host.session_id if self.host is not None else None
        session = AmplifierSession(plan, session_id=conversation_id, parent_id=parent_id)
        session.coordinator.register_capability("interactions.store", self.store)
        if self.host is not None:
            _connect(session.coordinator, self.host, conversation_id)
        async with session:
            for provider in providers:
                if not isinstance(provider, dict):
                    await session.coordinator.mount("providers", provider)
            await mount_tools(session.coordinator, config.tools, self.tools)
            with _following(session.coordinator.cancellation, self.host):
                yield session

    def _has_provider(self, config: LLMAgentConfig, prefix: str) -> bool:
        """Return whether the provider of a model can be mounted; a host's agents need one that the host has."""
        is_free = (
            self.host is None or "llm_model" not in config.model_fields_set or prefix in (_KEYLESS, *self.providers)
        )
        return is_free or self._host_entry(prefix) is not None

    def _host_entry(self, prefix: str) -> dict[str, Any] | None:
        """Return the host's provider with a prefix, as in its mount plan."""
        planned = (self.host.config.get("providers") or ()) if self.host is not None else ()
        return next((each for each in planned if each["module"] == f"provider-{prefix}"), None)

    def _providers(self, config: LLMAgentConfig) -> list[Provider | dict[str, Any]]:
        """Return the providers of an agent, or their entries in its mount plan."""
        if self.host is not None and "llm_model" not in config.model_fields_set:
            return list(self.host.get("providers").values())
        prefix, _, model = config.llm_model.partition("/")
        chosen = {**PROVIDERS, **self.providers}[prefix](model)
        entry = None if prefix in self.providers else self._host_entry(prefix)
        if entry is None or not isinstance(chosen, dict):
            return [chosen]
        return [{**entry, "config": {**(entry.get("config") or {}), **chosen.get("config", {})}}]

    def _hooks(self) -> list[Any]:
        """Return the host's entries of the hooks that its agents have too."""
        planned = (self.host.config.get("hooks") or ()) if self.host is not None else ()
        return [each for each in planned if (each if isinstance(each, str) else each["module"]) in _HOOKS]

    def _instructions(self, config: LLMAgentConfig) -> str | None:
        if config.behavior_template is None:
            return None
        described = self.tools.list_tools()
        variables = {
            "agent_id": config.id,
            "tools": {name: described[name] for name in config.tools},
            "today": datetime.now().astimezone().date().isoformat(),
        }
        return self.templates.render(config.behavior_template, variables)


def _connect(coordinator: ModuleCoordinator, host: ModuleCoordinator, conversation_id: str) -> None:
    """Give the session of an agent what its hooks use of the host: the accounts, and the people who approve calls."""
    coordinator.approval_system = host.approval_system
    for name in _SHARED:
        coordinator.register_capability(name, host.get_capability(name))
    if (sources := host.get("module-source-resolver")) is not None:
        coordinator.mount("module-source-resolver", sources)
    if (connect_people := host.get_capability("people.register")) is not None:
        connect_people(coordinator, conversation_id.rpartition("/")[2])


@contextmanager
def _following(token: CancellationToken, host: ModuleCoordinator | None) -> Iterator[None]:
    """Apply a stop of the host to an agent's run, at the same stage."""
    if host is None:
        yield
        return
    stop = host.cancellation
    # Not `register_child`: amplifier_core's token refuses ours.
    with stop.watch(lambda: token.request_immediate() if stop.is_immediate else token.request_graceful()):
        yield


class LLMAgent:
    """An agent driven by a language model; created by `LLMAgents`.

    Its state is in the conversation's log, so it continues after a restart.
    """

    def __init__(self, config: LLMAgentConfig, registry: AgentRegistry, parts: LLMAgents) -> None:
        self.config = config
        self._registry = registry
        self._parts = parts
        self._one_at_a_time: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, message: str, conversation_id: str, *, asked_by: str | None = None) -> str:
        """Answer a message in a conversation; a second one for the same conversation waits its turn.

        Raises:
            LLMError: the provider failed.
            RuntimeError: the provider is not available.
            TemplateError: the behavior template uses an undefined variable or fails.
            InteractionError: the conversation is finished, or its log is unusable.
            AgentStopped: the session that it works for was stopped.
        """
        lock = self._one_at_a_time.setdefault(conversation_id, asyncio.Lock())
        async with lock, self._parts.session(self.config, conversation_id, asked_by) as session:
            session.coordinator.register_capability("agents.registry", self._registry)
            judge_id = self.config.reflection_agent_id
            if judge_id and self.config.enable_self_reflection and not is_reflecting():
                reflection = Reflection(self._registry, judge_id, session.coordinator, self._parts.reflection_timeout_s)
                reflection.listen()
            answer: str = await session.execute(message)
            if session.status.status == "cancelled":
                raise AgentStopped(answer)
            return answer
