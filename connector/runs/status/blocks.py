"""Render a status message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.formatting.content import Content
from connector.formatting.inline import escape
from connector.runs.status.todo_list import lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.runs.status.activity import Activity

STOP_ACTION = "stop"
_SECTION_CHARS = 2900
# The elapsed time is shown in these steps, in minutes, then in hours. Each step costs an edit.
_MINUTES = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)
_HOUR = 60
_SHORTEST_S = 0.1


def status_content(activity: Activity, run_id: str, elapsed_s: float) -> Content:
    """Render the status message of a run. Its plain text is the current activity only."""
    phrase = escape(activity.phrase())
    blocks = [_section(phrase)]
    if activity.todo:
        heading, *items = lines(activity.todo)
        blocks.append(_section(_fitting([f"*{escape(heading)}*", *map(escape, items)])))
    if account := _account(activity, elapsed_s):
        blocks.append({"type": "context", "elements": [_text(escape(account))]})
    blocks.append({"type": "actions", "block_id": STOP_ACTION, "elements": [_stop(run_id, activity)]})
    return Content(phrase, tuple(blocks))


def plain_status(activity: Activity, elapsed_s: float) -> Content:
    """Render the status message without blocks, for when Slack rejects them."""
    shown = [activity.phrase(), *(lines(activity.todo) if activity.todo else ()), _account(activity, elapsed_s)]
    return Content(_fitting([escape(line) for line in shown if line]))


def until_next_step(elapsed_s: float) -> float:
    """Return the seconds until the shown elapsed time changes; at least `_SHORTEST_S`, as timers may fire early."""
    minutes = elapsed_s / 60
    following = next((step for step in _MINUTES if step > minutes), (int(minutes) // _HOUR + 1) * _HOUR)
    return max(following * 60 - elapsed_s, _SHORTEST_S)


def _account(activity: Activity, elapsed_s: float) -> str:
    time = _time(elapsed_s)
    return " · ".join([*([f"for {time}"] if time else []), *activity.account()])


def _time(elapsed_s: float) -> str:
    minutes = int(elapsed_s) // 60
    if minutes < _HOUR:
        shown = max((step for step in _MINUTES if step <= minutes), default=0)
        return f"{shown} min" if shown else ""
    return f"{minutes // _HOUR} h"


def _fitting(shown: Sequence[str]) -> str:
    """Join as many lines as fit into a section."""
    out: list[str] = []
    for line in shown:
        if sum(map(len, out)) + len(out) + len(line) > _SECTION_CHARS:
            return "\n".join([*out, "…"])
        out.append(line)
    return "\n".join(out)


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _text(text)}


def _text(text: str) -> dict[str, Any]:
    # Verbatim: Slack does not turn URLs and names in tool output into links.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _stop(run_id: str, activity: Activity) -> dict[str, Any]:
    """Render the stop button. The first press stops gracefully, the second one immediately."""
    words, style = ("Stop now", {"style": "danger"}) if activity.is_stopping else ("Stop", {})
    return {
        "type": "button",
        "action_id": STOP_ACTION,
        "value": run_id,
        "text": {"type": "plain_text", "text": words},
        **style,
    }
