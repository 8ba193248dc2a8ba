"""One run of a foreign orchestrator: what its prompt contains, which messages it has read, and its progress."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.loop.tool_call import label_of
from orchestrator_interactive.transcript.rows import delivered_ids_in, is_of_hook, marked, text_of

if TYPE_CHECKING:
    from connector.protocols import ProgressCallback
    from orchestrator_interactive.kernel import ModuleCoordinator

Row = dict[str, Any]


class ForeignRun:
    """A run, from its start until the next one begins.

    Args:
        progress: gets its progress events.
        marks: text and marks of each row with messages that the session has written; a loop that writes its rows again
            may drop their metadata.

    Attributes:
        is_working: the loop has the prompt, and has not ended.
        prompt_ids: the messages in the prompt, until its row is written.
        iterations: model calls so far that hook events reported.
        calls: the tool calls so far, by id, as in the progress event `complete`.
        has_answer_row: the loop has written a row of the model.
        has_succeeded: the loop has ended with an answer, and was not stopped.
    """

    def __init__(
        self, coordinator: ModuleCoordinator, progress: ProgressCallback | None, marks: list[tuple[str, dict[str, Any]]]
    ) -> None:
        self.coordinator = coordinator
        self.is_working = self.has_answer_row = self.has_succeeded = False
        self.prompt_ids: list[str] = []
        self.iterations = 0
        self.calls: dict[str, dict[str, Any]] = {}
        self._progress = progress
        self._prompt = ""
        # The texts of messages that were passed to the loop, by id, until their row is written.
        self._steered: dict[str, str] = {}
        # The ids of talk, by the message that brings it; "" is the prompt.
        self._talk: dict[str, list[str]] = {}
        self._marks = marks
        self._ids = count(1)

    def begin(self, prompt: str, ids: list[str], talk: list[str]) -> None:
        """Give the loop a prompt with these messages, and with talk."""
        self._prompt, self.prompt_ids, self.is_working = _plain(prompt), ids, True
        self._talk[""] = talk

    def expect(self, message_id: str, text: str, talk: list[str]) -> None:
        """Expect a row with a message that the loop was given, and with talk in front of it."""
        self._steered[message_id], self._talk[message_id] = _plain(text), talk

    def forget(self, message_id: str) -> bool:
        """Expect a message no longer. Returns False if it was not expected."""
        return self._steered.pop(message_id, None) is not None

    def delivered(self, ids: list[str]) -> None:
        """Note that the log has a row with these messages."""
        self.prompt_ids = [each for each in self.prompt_ids if each not in ids]
        for each in ids:
            self.forget(each)

    def marked(self, row: Row, *, is_new: bool = True) -> tuple[Row, list[str]]:
        """Return a row of the loop, marked with the messages that it delivers, and those that are new.

        A message is recognised by its text, apart from spaces. The first new row of a person is the prompt's, even
        if the loop has changed its text.
        """
        self.has_answer_row = self.has_answer_row or (is_new and row.get("role") == "assistant")
        if row.get("role") != "user" or is_of_hook(row) or not self.is_working or delivered_ids_in(row):
            return row, []
        text = plain = _plain(text_of(row))
        has_prompt = self._prompt in plain
        if self.prompt_ids and has_prompt:
            text = text.replace(self._prompt, "\n", 1)
        found = set[str]()
        # The longest first: one message may contain the text of another. Of the same text, the oldest.
        for message_id, expected in sorted(self._steered.items(), key=lambda each: -len(each[1])):
            rest, times = re.subn(rf"(?<!\w){re.escape(expected)}(?![\w,.;:!?-])", "\n", text, count=1)
            if times:
                text = rest
                found.add(message_id)
        steered = [each for each in self._steered if each in found]
        ids = self.prompt_ids if has_prompt or (is_new and not steered) else []
        marks: dict[str, Any] = {"message": ids[0]} if ids else {}
        marks |= {"messages": ids[1:]} if ids[1:] else {}
        marks |= {"injections": steered} if steered else {}
        if not marks:
            return row, []
        if talk := [each for source in (*([""] if ids else ()), *steered) for each in self._talk.get(source, ())]:
            marks["with_talk"] = talk
        self._marks.append((plain, marks))
        return marked(row, **marks), [*ids, *steered]

    def marked_again(self, rows: list[Row]) -> tuple[list[Row], list[str]]:
        """Return all rows of the conversation, which the loop has written again, with their marks, as `marked` does."""
        known, rows, new = list(self._marks), list(rows), list[str]()
        for number in reversed(range(len(rows)) if self.prompt_ids else ()):  # the last row with the text of the prompt
            if rows[number].get("role") == "user" and _plain(text_of(rows[number])) == self._prompt:
                rows[number], new = self.marked(rows[number], is_new=False)
                break
        for number, row in enumerate(rows):
            plain = _plain(text_of(row)) if row.get("role") == "user" else ""
            if (before := next((each for each in known if each[0] == plain), None)) is not None:
                known.remove(before)
                rows[number] = row if delivered_ids_in(row) else marked(row, **before[1])
        for number in reversed(range(len(rows))):  # new rows are at the end
            rows[number], ids = self.marked(rows[number], is_new=False)
            new += ids
        return rows, new

    # Progress

    async def emit(self, event: str, **data: Any) -> None:
        if self._progress is not None:
            await self._progress(event, data)

    async def on_event(self, event: str, data: dict[str, Any]) -> None:
        """Report a hook event of the loop as progress."""
        match event:
            case events.PROVIDER_REQUEST:
                self.iterations += 1
                await self.emit("thinking", iteration=self.iterations)
            case events.TOOL_PRE:
                await self._on_tool(data)
            case events.CONTEXT_PRE_COMPACT:
                await self.emit("compacting")
            case _:
                await self._on_result(event, data)

    async def _on_tool(self, data: dict[str, Any]) -> None:
        name, arguments = str(data.get("tool_name")), data.get("tool_input")
        arguments = arguments if isinstance(arguments, dict) else {}
        call_id = str(data.get("tool_call_id") or f"call-{next(self._ids)}")
        tool = self.coordinator.get("tools").get(name)
        label = label_of(tool, arguments) if tool is not None else None
        self.calls[call_id] = {"id": call_id, "tool": name, "label": label or name, "outcome": "unknown"}
        await self.emit("tool:start", tool=name, args=arguments, id=call_id, **({"label": label} if label else {}))

    async def _on_result(self, event: str, data: dict[str, Any]) -> None:
        name = data.get("tool_name")
        open_calls = [each for each in self.calls.values() if each["outcome"] == "unknown" and each["tool"] == name]
        call = self.calls.get(str(data.get("tool_call_id"))) or next(iter(open_calls), None)
        if call is not None and call["outcome"] == "unknown":
            result = data.get("tool_result", data.get("result"))
            has_succeeded = event == events.TOOL_POST and getattr(result, "success", True)
            call["outcome"] = "finished" if has_succeeded else "failed"
            await self.emit("tool:end", tool=name, id=call["id"], success=has_succeeded)


def _plain(text: str) -> str:
    """Return a text with single spaces, in which a message is recognised."""
    return " ".join(text.split())
