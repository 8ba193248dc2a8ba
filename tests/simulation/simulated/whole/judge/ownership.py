"""Whether one process at a time acts in a conversation, and does nothing twice that may not be."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulated.whole.agent import Use
    from simulated.whole.witness import Commit


def fencing(commits: Iterable[Commit]) -> Iterator[str]:
    """Nobody writes to a log after somebody with a higher token."""
    highest: dict[object, int] = defaultdict(int)
    for commit in commits:
        if commit.fence is None:
            yield f"Process {commit.process} has written to {commit.key} under no token."
        elif commit.fence < highest[commit.key]:
            yield f"Process {commit.process} has written to {commit.key} though another one owns it."
        else:
            highest[commit.key] = commit.fence


def repeated(uses: Iterable[Use]) -> Iterator[str]:
    """A tool that is not free of side effects is used once for a call."""
    counted = Counter(use.call for use in uses if use.tool == "act")
    yield from (f"The call {call} was executed {n} times." for call, n in counted.items() if n > 1)
