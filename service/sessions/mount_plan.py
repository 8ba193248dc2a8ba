"""Sessions, and their mount plans from an instance's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name
from service.config.config import ModuleConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from service.config.config import InstanceConfig

_WITH_LOG = "context-stack"
_WITH_INSTRUCTIONS = ("context-simple", _WITH_LOG)
_OF_ANTHROPIC = "provider-anthropic"


def mount_plan(  # noqa: PLR0913 - the last three have defaults
    instance: InstanceConfig,
    default_provider: str,
    workspace: Path,
    conversation: Key | None = None,
    limits: Mapping[str, int] | None = None,
    *,
    anthropic_api_key: str = "",
) -> dict[str, Any]:
    """Build the mount plan of a conversation's session, whose files are in `workspace`.

    `conversation` is the key of its log. `limits` are the options of `tool-filesystem` that limit the workspace.
    `anthropic_api_key` is for each Anthropic provider without its own key.
    """
    providers = instance.providers or [ModuleConfig(module=default_provider)]
    return {
        "session": {
            "orchestrator": _entry(instance.orchestrator),
            "context": _entry(instance.context, _of_context(instance, conversation)),
            **instance.session.model_dump(exclude_none=True),
        },
        "providers": [_provider(each, anthropic_api_key) for each in providers],
        "tools": [_entry(tool, _rooted(tool, workspace, limits or {})) for tool in instance.tools],
        "hooks": [_entry(hook) for hook in instance.hooks],
    }


def new_session(plan: dict[str, Any], store: LogStore, *, is_resumed: bool = False) -> AmplifierSession:
    """Create a session for a plan whose modules may have local sources. `store` is for its conversation's log."""
    session = AmplifierSession(plan, is_resumed=is_resumed)
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

    def resolve(self, module_id: str, profile_hint: str | None = None) -> LocalSource:
        """Return a module's local source.

        Raises:
            ModuleNotFoundError: the plan has no `source` for the module, or the path does not exist.
        """
        if profile_hint is None:
            raise ModuleNotFoundError("The plan has no `source` for it.")
        path = Path(profile_hint)
        if not path.exists():
            raise ModuleNotFoundError(f"The source of '{module_id}' does not exist: {path}.")
        return LocalSource(path)


def keeps_log(instance: InstanceConfig) -> bool:
    """Return whether the instance's conversations are logged in the store and so survive a restart."""
    return instance.context.module == _WITH_LOG


def _entry(module: ModuleConfig, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"module": module.module, "source": module.source, "config": {**(defaults or {}), **module.config}}


def _of_context(instance: InstanceConfig, conversation: Key | None) -> dict[str, Any]:
    name = instance.context.module
    options: dict[str, Any] = {"system_prompt": instance.instructions} if name in _WITH_INSTRUCTIONS else {}
    if keeps_log(instance) and conversation is not None:
        options |= {"conversation_id": conversation.conversation_id, "agent_id": conversation.agent_id}
    return options


def _provider(module: ModuleConfig, anthropic_api_key: str) -> dict[str, Any]:
    """Pass the API key as an option: it was removed from the environment."""
    entry = _entry(module)
    if module.module == _OF_ANTHROPIC and anthropic_api_key and not entry["config"].get("api_key"):
        entry["config"]["api_key"] = anthropic_api_key
    return entry


def _rooted(tool: ModuleConfig, workspace: Path, limits: Mapping[str, int]) -> dict[str, Any]:
    """Confine `tool-filesystem` to the conversation's folder. The limits do not apply to a configured `root`."""
    if tool.module != "tool-filesystem" or "root" in tool.config:
        return {}
    return {"root": str(workspace), **limits}
