"""Module sources: the local path in the plan, or else an installed module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name


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
