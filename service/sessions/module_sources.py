"""Where the modules of a plan come from: a path on this machine, where the plan gives one; else what is installed."""

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
        """Lead to a module's `source`.

        Raises:
            ModuleNotFoundError: the plan gives none, or there is nothing at that path.
        """
        if profile_hint is None:
            raise ModuleNotFoundError("The plan gives no `source` for it.")
        path = Path(profile_hint)
        if not path.exists():
            raise ModuleNotFoundError(f"The source of '{module_id}' is gone: there is nothing at {path}.")
        return LocalSource(path)
