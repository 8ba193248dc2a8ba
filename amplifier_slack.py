"""The start of `amplifier-slack`: reports another distribution's package under the name of one of ours.

Its own name is unique, so it is found also where `service` or `connector` is someone else's.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

_PACKAGES = ("orchestrator_interactive", "connector", "service", "local_slack")


def main() -> None:
    """Run the command; Ctrl-C ends it without a traceback also while it is loaded."""
    if "run" in sys.argv[1:2] and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reloads the service once that runs
    try:
        for name in _PACKAGES:
            if problem := collision(name):
                sys.exit(f"Error: {problem}")
        from service.cli.main import main as command  # noqa: PLC0415 - only if it is ours

        command(prog_name="amplifier-slack")
    except KeyboardInterrupt:
        sys.exit(130)


def collision(name: str) -> str | None:
    """Return a sentence if the package that an import of this name finds is not ours."""
    from importlib.util import find_spec  # noqa: PLC0415 - Ctrl-C is handled from here on

    ours = Path(__file__).resolve().with_name(name) / "__init__.py"
    spec = find_spec(name)
    found = Path(spec.origin).resolve() if spec and spec.origin else None
    if found == ours and _is_unchanged(ours):
        return None
    return (
        f"the Python package `{name}` of amplifier-slack is hidden or overwritten by {found or 'another package'}. "
        "Install amplifier-slack into an environment of its own: pipx install amplifier-slack, or uvx amplifier-slack."
    )


def _is_unchanged(path: Path) -> bool:
    """Return whether an installed file has the size of ours; a checkout has no record of its files."""
    records = (folder / "RECORD" for folder in path.parents[1].glob("amplifier_slack-*.dist-info"))
    lines = (line for record in records for line in record.read_text(encoding="utf-8").splitlines())
    sizes = [line.rpartition(",")[2] for line in lines if line.startswith(f"{path.parent.name}/__init__.py,")]
    return not sizes or str(path.stat().st_size) in sizes


if __name__ == "__main__":
    main()
