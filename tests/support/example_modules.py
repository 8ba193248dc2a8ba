"""Example modules, their changes, and a validation in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.validation import Report, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.module import ValidationOrder, run_checks

if TYPE_CHECKING:
    from orchestrator_interactive.validation import ModuleType
    from orchestrator_interactive.validation.runner import Message

EXAMPLES = Path(__file__).parents[1] / "orchestrator_interactive" / "validation" / "examples"


class Checker(NamedTuple):
    """Changes example modules, and validates modules in this process, which is faster than in a subprocess."""

    folder: Path

    def changed(self, example: str, *changes: tuple[str, str], folder: Path = EXAMPLES) -> Path:
        """Write an example with texts replaced wherever they occur; each must occur."""
        source = (folder / f"{example}.py").read_text()
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        path = self.folder / f"{example}.py"
        path.write_text(source)
        return path

    async def report(
        self,
        path: Path,
        module_type: ModuleType | None = None,
        config: dict[str, Any] | None = None,
        limit_s: float = 5.0,
        given: dict[str, Any] | None = None,
    ) -> Report:
        messages: list[Message] = []
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        await run_checks(ValidationOrder(path, module_type, config or {}, limit_s, given), messages.append, home)
        subject = [each for each in messages if isinstance(each, ValidatedModule)][-1]
        return Report(subject, tuple(each for each in messages if isinstance(each, ValidationFinding)))
