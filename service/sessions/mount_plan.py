"""Sessions, their mount plans from an instance's configuration, and a check that a plan can be mounted."""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.delegation.child_sessions import child_config
from orchestrator_interactive.interactions.stores import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from service.config.config import AGENT_PARTS, ModuleConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.loading.loader import Mount
    from service.config.config import InstanceConfig

_WITH_LOG = "context-stack"
_WITH_INSTRUCTIONS = ("context-simple", _WITH_LOG)
_OF_ANTHROPIC = "provider-anthropic"
# A budget is for the whole work of an instance.
_BUDGET = "hooks-budget"
# The modules that work in the workspace folder, and their options that limit it.
_IN_WORKSPACE = {
    "tool-filesystem": ("quota_mb", "quota_files", "reserve_mb"),
    "tool-bash": ("quota_mb", "reserve_mb"),
    "tool-share-file": (),
}
NO_KEYS: Mapping[str, str] = MappingProxyType({})
_SINGLE = ("orchestrator", "context")
_MULTI = ("providers", "tools")
_CONFIGURED_POINT = "configured point"


def mount_plan(  # noqa: PLR0913 - the last three have defaults
    instance: InstanceConfig,
    default_provider: str,
    workspace: Path,
    conversation: Key | None = None,
    limits: Mapping[str, int] | None = None,
    *,
    provider_keys: Mapping[str, str] = NO_KEYS,
) -> dict[str, Any]:
    """Build the mount plan of a conversation's session, whose files are in `workspace`.

    `conversation` is the key of its log. `limits` are the options that limit the workspace; they
    do not apply to a configured `root`. `provider_keys` has keys by module,
    for providers without their own key and address.
    """
    context_options: dict[str, Any] = {}
    if instance.context.module in _WITH_INSTRUCTIONS:
        channel = ":".join(conversation.conversation_id.split(":")[1:2]) if conversation is not None else ""
        context_options["system_prompt"] = instance.instructions_in(channel)
    if keeps_log(instance) and conversation is not None:
        context_options |= {"conversation_id": conversation.conversation_id, "agent_id": conversation.agent_id}

    def entries(modules: Iterable[ModuleConfig]) -> list[dict[str, Any]]:
        found = [_entry(each) for each in modules]
        for each in found:
            options = each["config"]
            key = provider_keys.get(each["module"], "")
            if key and not options.get("api_key") and (each["module"] == _OF_ANTHROPIC or not options.get("base_url")):
                options["api_key"] = key  # it was removed from the environment
            if each["module"] in _IN_WORKSPACE and options.keys().isdisjoint({"root", "working_dir"}):
                own = {name: (limits or {})[name] for name in _IN_WORKSPACE[each["module"]] if name in (limits or {})}
                each["config"] = {"root": str(workspace), **own, **options}
        return found

    agents = {}
    for name, agent in instance.agents.items():
        own = {part: entries(modules) for part in AGENT_PARTS if (modules := getattr(agent, part)) is not None}
        if "hooks" in own and _BUDGET not in {each["module"] for each in own["hooks"]}:
            own["hooks"] += entries(each for each in instance.hooks if each.module == _BUDGET)
        options = {"session": {"orchestrator": {"config": agent.orchestrator}}} if agent.orchestrator else {}
        facts = {"description": agent.description, "instructions": agent.instructions, "replace": list(own)}
        agents[name] = {**facts, **own, **options}
    return {
        "session": {
            "orchestrator": _entry(instance.orchestrator),
            "context": _entry(instance.context, context_options),
            **instance.session.model_dump(exclude_none=True),
        },
        "providers": entries(instance.providers or [ModuleConfig(module=default_provider)]),
        "tools": entries(instance.tools),
        "hooks": entries(instance.hooks),
        "agents": agents,
    }


def agent_plans(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the mount plan of each sub-agent of a plan, by its name."""
    return {name: child_config(plan, agent) for name, agent in plan["agents"].items()}


def new_session(
    plan: dict[str, Any], store: LogStore, *, is_resumed: bool = False, loader: ModuleLoader | None = None
) -> AmplifierSession:
    """Create a session for a plan whose modules may have local sources. `store` is for its conversation's log."""
    session = AmplifierSession(plan, loader, is_resumed=is_resumed)
    session.coordinator.register_capability("interactions.store", store)
    session.coordinator.mount("module-source-resolver", LocalSources())
    return session


@dataclass(frozen=True, slots=True)
class LocalSource:
    path: Path

    def resolve(self) -> Path:
        return self.path


class LocalSources:
    """The `module-source-resolver` of the service: a `source` is the path of a project, a package or a Python file."""

    def resolve(self, module_id: str, profile_hint: str | None = None) -> LocalSource | None:
        """Return a module's local source; None for an installed module.

        Raises:
            ModuleNotFoundError: the path does not exist.
        """
        if profile_hint is None:
            return None
        path = Path(profile_hint)
        if not path.exists():
            raise ModuleNotFoundError(f"The source of '{module_id}' does not exist: {path}.")
        return LocalSource(path)


def keeps_log(instance: InstanceConfig) -> bool:
    """Return whether the instance's conversations are logged in the store and so survive a restart."""
    return instance.context.module == _WITH_LOG


def _entry(module: ModuleConfig, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    named = {} if module.name is None else {"instance_id": module.name}
    return {"module": module.module, "source": module.source, "config": {**(defaults or {}), **module.config}, **named}


async def find_problems(plan: dict[str, Any]) -> list[str]:
    """Mount and unmount a plan; return one sentence for each problem."""
    problems: list[str] = []

    async def note(_event: str, data: dict[str, Any]) -> HookResult:
        problems.append(_sentence(data["module_id"], data["error"]))
        return HookResult()

    watched = _WatchedLoader()
    session = new_session(plan, MemoryStore(), loader=watched)
    session.coordinator.hooks.register(events.MODULE_LOAD_FAILED, note)
    try:
        await session.initialize()
    except Exception as e:  # noqa: BLE001 - a tool call's border: a module may raise anything
        return [_sentence(watched.latest, str(e) or type(e).__name__)]
    finally:
        await session.cleanup()
    problems += [*watched.misplaced(plan), *watched.replaced]
    if not session.coordinator.get("providers") and not problems:
        return ["No provider could be mounted: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name another provider."]
    return problems


def _sentence(module: str, error: str) -> str:
    problem = " ".join(error.split()) or "cannot be mounted; it gives no reason."
    return problem if module in problem else f"{module}: {problem}"


class _WatchedLoader(ModuleLoader):
    """Records at which points each module mounts something, and which providers replace one another."""

    def __init__(self) -> None:
        super().__init__()
        self.latest = ""
        self.replaced: list[str] = []
        self._points: defaultdict[str, set[str]] = defaultdict(set)

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Mount:
        self.latest = module_id
        found = await super().load(module_id, config, profile_source)

        async def watched(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Any:
            before, providers = _mounted(coordinator), dict(coordinator.get("providers"))
            result = await replace(found, config=config)(coordinator)
            new = {point for point, _ in _mounted(coordinator) - before}
            if not new and result is not None and not inspect.isroutine(result):
                new = {_CONFIGURED_POINT}  # the session mounts a returned module at the configured point
            self._points[module_id] |= new
            self.replaced += [
                f"providers: the module '{module_id}' replaces '{name}', which has the same name. Give them different "
                "names to use one as the fallback of the other."
                for name, provider in providers.items()
                if coordinator.get("providers", name) is not provider
            ]
            return result

        return replace(found, function=watched)

    def misplaced(self, plan: dict[str, Any]) -> list[str]:
        """Return one sentence for each module under the key of another module type."""
        placed = [(point, plan["session"][point]["module"]) for point in _SINGLE]
        placed += [(point, entry["module"]) for point in (*_MULTI, "hooks") for entry in plan[point]]
        found = ((point, module, self._points[module]) for point, module in placed if module in self._points)
        return [
            f"{point}: the module '{module}' {problem}" for point, module, at in found if (problem := _wrong(point, at))
        ]


def _wrong(point: str, points: set[str]) -> str | None:
    """Describe the problem of a module that is configured at `point` and mounts something at `points`."""
    if point == "hooks":
        # Hooks may register their handlers later, when the session is ready.
        is_right, problem = not points or point in points, "registers no handler"
    else:
        # A provider without an API key mounts nothing; the session uses the next one.
        is_right = not points.isdisjoint({point, _CONFIGURED_POINT}) or (point == "providers" and not points)
        problem = f"mounts no {point.removesuffix('s')}"
    if is_right:
        return None
    return f"{problem}; it is under the wrong key." if points else "mounts nothing; check its `config`."


def _mounted(coordinator: ModuleCoordinator) -> set[tuple[str, int]]:
    """Return the mounted modules and handlers as (mount point, identity)."""
    single = {(point, id(module)) for point in _SINGLE if (module := coordinator.get(point)) is not None}
    handlers = {("hooks", hash((event, *names))) for event, names in coordinator.hooks.list_handlers().items()}
    return single | handlers | {(point, id(module)) for point in _MULTI for module in coordinator.get(point).values()}
