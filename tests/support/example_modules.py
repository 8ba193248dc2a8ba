"""Example modules, and variants that violate a rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.kernel.loading.location import locate
from orchestrator_interactive.validation import Report, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.validator import Order, run_checks

if TYPE_CHECKING:
    from orchestrator_interactive.validation import ModuleType
    from orchestrator_interactive.validation.runner import ValidationRule, ValidationStep

EXAMPLES = Path(__file__).parent.parent / "validation" / "examples"


class Mutant(NamedTuple):
    """A change to an example module, the rules that it violates, and the first message.

    `limit_s` limits a check: short if the change makes it endless.
    """

    old: str
    new: str
    rules: tuple[ValidationRule[Any], ...]
    said: str
    limit_s: float = 5.0


class ExampleValidator(NamedTuple):
    """Validates modules in this process, which is fast."""

    folder: Path

    async def examine(
        self,
        path: Path,
        module_type: ModuleType | None = None,
        config: dict[str, Any] | None = None,
        limit_s: float = 5.0,
        given: dict[str, Any] | None = None,
    ) -> Report:
        findings: list[ValidationFinding] = []
        subjects: list[ValidatedModule] = []

        def tell(message: ValidationStep | ValidationFinding | ValidatedModule) -> None:
            if isinstance(message, ValidationFinding):
                findings.append(message)
            elif isinstance(message, ValidatedModule):
                subjects.append(message)

        home = self.folder / "home"
        home.mkdir()
        await run_checks(Order(locate(path), module_type, config or {}, limit_s, given), tell, home)
        return Report(subjects[-1], tuple(findings))

    def changed(self, example: str, *changes: tuple[str, str], folder: Path = EXAMPLES) -> Path:
        """Return an example with all occurrences of some texts replaced. Each text must occur."""
        source = (folder / f"{example}.py").read_text()
        for old, new in changes:
            assert old in source
            source = source.replace(old, new)
        path = self.folder / f"{example}.py"
        path.write_text(source)
        return path
