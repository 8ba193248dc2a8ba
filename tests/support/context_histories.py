"""Generated conversations for property tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from context_rows import calls, from_hook, late, notice, pending, result, said, steer, thinking, user
from hypothesis import strategies as st

from orchestrator_interactive.loop.injection_queue import NOTICE_PREFIX, PREFIX

Row = dict[str, Any]

words = st.text("ab ü☃", min_size=1, max_size=40).map(lambda text: f"{text}.")
lengths = st.sampled_from([1, 1, 1, 3, 20, 200])


@dataclass
class HistoryBuilder:
    """A conversation in the making: each row is like no other, so that it is known again in a view."""

    draw: st.DrawFn
    rows: list[Row] = field(default_factory=list)
    at_work: list[str] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def text(self) -> str:
        return f"{next(self.numbers)} {self.draw(words) * self.draw(lengths)}"

    def prompt(self) -> None:
        beginning = self.draw(st.sampled_from(["", "", PREFIX, NOTICE_PREFIX]))
        self.rows.append(user(f"{beginning}{self.text()}"))
        self.at_work.clear()

    def steered(self) -> None:
        self.rows.append(steer(self.text(), f"m{next(self.numbers)}"))

    def noticed(self) -> None:
        self.rows.append(notice(self.text()))

    def hooked(self) -> None:
        self.rows.append(from_hook(self.text(), self.draw(st.sampled_from(["system", "user"]))))

    def ruled(self) -> None:
        self.rows.append({"role": "system", "content": f"{next(self.numbers)} rule"})

    def answered(self) -> None:
        self.rows.append(said(self.text(), *self._thoughts()))

    def stepped(self) -> None:
        ids = [f"c{next(self.numbers)}" for _ in range(self.draw(st.integers(1, 3)))]
        self.rows.append(calls(*ids, before=self._thoughts()))
        for call_id in self.draw(st.permutations(ids)):
            if self.draw(st.integers(0, 4)) == 0:
                self.rows.append(pending(call_id))
                self.at_work.append(call_id)
            else:
                self.rows.append(result(call_id, self.text()))

    def ended_late(self) -> None:
        if self.at_work:
            self.rows.append(late(self.at_work.pop(0), self.text()))

    def _thoughts(self) -> tuple[dict[str, Any], ...]:
        redacted = {"type": "redacted_thinking", "data": self.text()}
        return tuple(self.draw(st.sampled_from([[], [thinking(self.text())], [thinking(self.text()), redacted]])))


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    story = HistoryBuilder(draw)
    story.prompt()
    acts: list[Callable[[], None]] = [
        *[story.stepped] * 4,
        *[story.ended_late] * 2,
        story.prompt,
        story.steered,
        story.noticed,
        story.hooked,
        story.ruled,
        story.answered,
    ]
    for act in draw(st.lists(st.sampled_from(range(len(acts))), max_size=30)):
        acts[act]()
    return story.rows
