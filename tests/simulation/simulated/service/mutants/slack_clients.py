"""Wires that say other things than they are given to."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from connector.slack_api.client import SlackClient
from connector.slack_api.history import ThreadHistory

if TYPE_CHECKING:
    from connector.events import ThreadAddress
    from connector.formatting.content import Content
    from connector.protocols import Persona


class _Leaving(SlackClient):
    """Leaves out of the service's own sentences what `words` match; one of which nothing is left is not posted."""

    words = ""
    instead = ""

    async def post(
        self, place: ThreadAddress, content: Content, key: str, persona: Persona | None = None, **options: Any
    ) -> str:
        text = content.text if persona else re.sub(self.words, self.instead, content.text)
        if not text.strip():
            return "1.0"
        return await super().post(place, replace(content, text=text), key, persona, **options)


class HidesTheUnknown(_Leaving):
    """Does not say of which calls nobody knows what they did."""

    words = "Outcome unknown: [^.]*[.]"


class HidesWhatIsHeld(_Leaving):
    """Does not say what a stop holds back."""

    words = r"(📨 )?\d+ messages? (has|have) not been read yet.*"


class HidesWhatWasDone(_Leaving):
    """Does not say what a stopped run had done."""

    words = r"\d+ tool calls? finished[^.]*[.]"


class HidesWhoHasStopped(_Leaving):
    """Says of each stop that somebody did it."""

    words, instead = r"Stopped by \w+", "Stopped by somebody"


class TakesStopsForEnds(_Leaving):
    """Says of a run that was stopped that it is done."""

    words, instead = "^🛑 .*", "Done."


class TakesFailuresForEnds(_Leaving):
    """Says of a run that has failed that it is done."""

    words, instead = "^⚠️ .*", "Done."


class AnswersNoStop(_Leaving):
    """Tells nobody that nothing is running."""

    words = "^Nothing is running here[.]"


class StopsBeginningsInSilence(SlackClient):
    """Tells nobody that no run begins with a message."""

    async def post(
        self, place: ThreadAddress, content: Content, key: str, persona: Persona | None = None, **options: Any
    ) -> str:
        is_of_no_run = key.startswith(place.team) and content.text.startswith("🛑")
        return "1.0" if is_of_no_run else await super().post(place, content, key, persona, **options)


class AsksNobody(SlackClient):
    """Posts for a process that may not own the conversation any more."""

    async def post(
        self, place: ThreadAddress, content: Content, key: str, persona: Persona | None = None, **options: Any
    ) -> str:
        return await super().post(place, content, key, persona, **{**options, "confirm": None})


class _Unseeing(ThreadHistory):
    async def message(self, *_: Any, **__: Any) -> dict[str, Any] | None:
        return None


class HasNeverSeenAMessage(SlackClient):
    """Does not know how a message reads."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.history = _Unseeing(self)
