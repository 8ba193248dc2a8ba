"""Whether one process at a time acts in a conversation, and does nothing twice that may not be."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from simulated.service.web import ON_ITS_WAY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulated.service.agent import Use
    from simulated.service.store_observer import Commit

    from .evidence import Evidence


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


def posts(case: Evidence) -> Iterator[str]:
    """Nobody posts in a conversation that somebody else has taken up, but for what was on its way."""
    for post in case.ever:
        mine = max((at_s for at_s in case.claims_s[post.by] if at_s < post.made_s), default=0.0)
        others = (at_s for process, times_s in case.claims_s.items() if process != post.by for at_s in times_s)
        since_s = min((at_s for at_s in others if mine < at_s), default=post.made_s)
        if post.made_s > since_s + ON_ITS_WAY_S and not post.is_stray:
            late_s = post.made_s - since_s
            yield f"Process {post.by} has posted {post.text[:40]!r}, {late_s:.1f} s after it was succeeded."


def repeated(uses: Iterable[Use]) -> Iterator[str]:
    """A tool that is not free of side effects is used once for a call."""
    counted = Counter(use.call for use in uses if use.tool == "act")
    yield from (f"The call {call} was executed {n} times." for call, n in counted.items() if n > 1)
