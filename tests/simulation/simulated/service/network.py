"""The way from a process to a server, and back: it takes time, and either half of it can fail."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from simulated.engine import LIFE

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated.scenario import Scenario

T = TypeVar("T")


class Unreachable(Exception):  # noqa: N818 - a fact about the way
    """There was no answer: what was asked for was done, or not."""


@dataclass(slots=True)
class _Request:
    what: str
    effect: Callable[[], Any]
    reply: asyncio.Future[Any]
    home: contextvars.Context
    is_sent: bool
    is_refused: bool
    is_lost: bool


class Server:
    """What all processes use. Whoever is killed does not take along what he has sent.

    `trouble` is the feature by which single requests fail. With `is_away` nobody is answered.
    """

    def __init__(self, scene: Scenario, name: str, trouble: str, scales_s: tuple[float, ...]) -> None:
        self.is_away = False
        self.name = name
        self.scene = scene
        self._trouble = trouble
        self._scales_s = scales_s
        self._here = contextvars.copy_context()
        self._here.run(LIFE.set, 0)

    def line(self) -> Line:
        """A connection on which requests arrive in the order in which they were sent."""
        return Line(self)

    def travel_s(self) -> float:
        """How long half of the way takes."""
        scene = self.scene
        if scene.happens(f"slow {self.name}", 0.1):
            return scene.some_s(0.1, 0.5)
        return scene.chance.choice(self._scales_s) * (0.5 + scene.chance.random())

    def send(self, what: str, effect: Callable[[], Any], line: Line) -> asyncio.Future[Any]:
        scene, loop = self.scene, self.scene.loop
        reply = loop.create_future()
        is_refused, is_lost = scene.happens(self._trouble, 0.03), scene.happens(self._trouble, 0.04)
        # What was sent arrives though its sender is killed meanwhile; what is only about to be sent does not.
        is_sent = scene.happens("orphans", 0.5)
        request = _Request(what, effect, reply, contextvars.copy_context(), is_sent, is_refused, is_lost)
        if scene.happens("late arrivals", 0.02):
            scene.count(f"{self.name}: late arrival")
            self._answer(request, Unreachable(what), is_error=True)
            loop.call_later(scene.some_s(0.3, 3), self.arrive, request, context=self._here)
            return reply
        line.waiting.append(request)
        loop.call_later(self.travel_s(), line.arrive, context=self._here)
        return reply

    def arrive(self, request: _Request) -> None:
        scene = self.scene
        if not request.is_sent and scene.loop.died_s(request.home.get(LIFE, 0)) is not None:
            return
        if self.is_away or request.is_refused:
            scene.count(f"{self.name}: refused")
            scene.tell(self.name, f"refuses {request.what}")
            self._answer(request, Unreachable(request.what), is_error=True)
            return
        try:
            result, is_error = request.effect(), False
        except Exception as e:  # noqa: BLE001 - it is the answer
            result, is_error = e, True
        self._answer(request, result, is_error=is_error)

    def _answer(self, request: _Request, answer: Any, *, is_error: bool) -> None:
        self.scene.loop.call_later(self.travel_s(), self._reach, request, answer, is_error, context=request.home)

    def _reach(self, request: _Request, answer: Any, is_error: bool) -> None:
        if request.reply.done():  # nobody waits for it any more
            return
        if (request.is_lost or self.is_away) and not isinstance(answer, Unreachable):
            self.scene.count(f"{self.name}: reply lost")
            self.scene.tell(self.name, f"its reply to {request.what} is lost")
            answer, is_error = Unreachable(request.what), True
        if is_error:
            request.reply.set_exception(answer)
        else:
            request.reply.set_result(answer)


class Line:
    """One connection: first in, first out."""

    def __init__(self, server: Server) -> None:
        self.waiting: deque[_Request] = deque()
        self._server = server

    async def ask(self, what: str, effect: Callable[[], T]) -> T:
        """What `effect` gives or raises, called there once; where Unreachable is raised: once or never."""
        answer: T = await self._server.send(what, effect, self)
        return answer

    def arrive(self) -> None:
        self._server.arrive(self.waiting.popleft())
