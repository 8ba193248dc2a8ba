"""Slack's Web API as a process sees it: it takes time, and fails before or after what it was asked for."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from slack_sdk.errors import SlackApiError

from simulated.engine import LIFE

from .slack import Refusal

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .slack import Slack

# Ways in which a call can fail; the second kind once it was done.
_BEFORE = ("dropped before", "500 before", "ratelimited")
_AFTER = ("dropped after", "500 after")
_WAYS = (*_BEFORE, *_AFTER)
_MOST_FAILURES = 2
_WHILE_AWAY = ("dropped before", "500 before", "500 before", "500 after")
# How long a call may be on its way, whatever has become of its sender. A client waits for 15 s.
ON_ITS_WAY_S = 6.0


class _Response:
    def __init__(self, data: Any, status_code: int = 200, headers: dict[str, str] | None = None) -> None:
        self.data = data
        self.status_code = status_code
        self.headers = headers or {}

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default) if isinstance(self.data, dict) else default

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


@dataclass(frozen=True, slots=True)
class _Call:
    """`is_sent`: it arrives though its sender is killed meanwhile."""

    method: str
    given: dict[str, Any]
    fate: str
    reply: asyncio.Future[_Response]
    home: contextvars.Context
    is_sent: bool
    sent_s: float


class Web:
    """The client of one process."""

    def __init__(self, scene: Scenario, slack: Slack, process: int) -> None:
        self._scene = scene
        self._slack = slack
        self._process = process
        self._failed: Counter[object] = Counter()
        self._sent: set[str] = set()
        self._there = contextvars.copy_context()
        self._there.run(LIFE.set, 0)

    async def api_call(self, method: str, data: dict[str, Any]) -> _Response:
        loop, given = self._scene.loop, dict(data)
        reply = loop.create_future()
        home = contextvars.copy_context()
        fate = self._fate(method, given)
        is_sent = self._scene.happens("orphans", 0.5)
        call = _Call(method, given, fate, reply, home, is_sent, loop.time())
        loop.call_later(min(self._travel_s(), ON_ITS_WAY_S), self._arrive, call, context=self._there)
        answer: _Response = await reply
        return answer

    def _fate(self, method: str, given: dict[str, Any]) -> str:
        scene = self._scene
        if self._slack.is_away:
            return scene.chance.choice(_WHILE_AWAY)
        if method == "conversations.replies" and not self._slack.tells_of_threads:
            return "500 before"
        if not scene.happens("failing Slack", 0.12):
            return "answered"
        what = method, given.get("metadata"), given.get("ts"), given.get("timestamp"), given.get("name")
        self._failed[what] += 1
        if self._failed[what] > _MOST_FAILURES:
            return "answered"
        return scene.chance.choice(_WAYS)

    def _travel_s(self) -> float:
        scene = self._scene
        if scene.happens("slow Slack", 0.15):
            return scene.some_s(0.3, 1.0)
        return 0.03 * (0.5 + scene.chance.random())

    def _arrive(self, call: _Call) -> None:
        if self._scene.loop.died_s(self._process) is None:
            self._take_effect(call)
        elif call.is_sent:
            left_s = max(0.0, call.sent_s + ON_ITS_WAY_S - self._scene.now())
            later_s = self._scene.chance.choice([0.0, self._scene.chance.uniform(0.0, left_s)])
            self._scene.count("call of a dead process")
            self._scene.loop.call_later(later_s, self._take_effect, call, context=self._there)

    def _take_effect(self, call: _Call) -> None:
        scene, method, given, fate = self._scene, call.method, call.given, call.fate
        if fate != "answered":
            scene.count(f"Slack: {fate}")
        answer: _Response | BaseException
        if method == "chat.postMessage":
            self._count_post(given, fate)
        if fate in _BEFORE:
            answer = _failure(method, fate, scene.chance.choice([0, 1, 2]))
        else:
            answer = self._answered(method, given)
            if fate in _AFTER:
                answer = _failure(method, fate)
        scene.tell("Slack", f"{method} of {self._process}: {_said(given)}{'' if fate == 'answered' else f' ({fate})'}")
        scene.loop.call_later(self._travel_s(), _reach, call.reply, answer, context=call.home)

    def _count_post(self, given: dict[str, Any], fate: str) -> None:
        if fate in _AFTER:
            self._scene.count("post made, and its answer lost")
        if given["metadata"] in self._sent:
            self._scene.count("post sent again")
        self._sent.add(given["metadata"])

    def _answered(self, method: str, given: dict[str, Any]) -> _Response | BaseException:
        try:
            return _Response(self._slack.call(method, given, self._process))
        except Refusal as e:
            word = {"ok": False, "error": str(e)}
            return SlackApiError(str(e), _Response(word))


def _failure(method: str, fate: str, retry_after_s: int = 0) -> BaseException:
    if fate.startswith("500"):
        return SlackApiError(method, _Response("<html>", 500))
    if fate == "ratelimited":
        headers = {"Retry-After": str(retry_after_s)}
        return SlackApiError(method, _Response({"ok": False, "error": "ratelimited"}, 429, headers))
    return aiohttp.ServerDisconnectedError()


def _reach(reply: asyncio.Future[_Response], answer: _Response | BaseException) -> None:
    if reply.done():
        return
    if isinstance(answer, BaseException):
        reply.set_exception(answer)
    else:
        reply.set_result(answer)


def _said(given: dict[str, Any]) -> str:
    told = (given.get("text", "")[:60], given.get("name"), given.get("ts"), given.get("timestamp"), given.get("user"))
    return " ".join(repr(each) if " " in each else each for each in told if each)
