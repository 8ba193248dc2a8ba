"""Slack's Web API as the SDK's client shows it, for tests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from slack_sdk.errors import SlackApiError


class FakeResponse(dict[str, Any]):
    """A response as the SDK returns it."""

    status_code = 200

    def __init__(self, data: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(data)
        self.headers = headers or {}

    @property
    def data(self) -> dict[str, Any]:
        return dict(self)


class FakeWebClient:
    """A workspace with one thread, in which calls fail with `error`, or a method with its next `errors`.

    An error `None` is a success. Agent sessions are not available, unless they have errors.
    """

    def __init__(self, error: str = "", errors: Mapping[str, Iterable[Mapping[str, Any] | None]] | None = None) -> None:
        self.error = error
        self.thread: list[dict[str, Any]] = [{"ts": "1.0"}]
        self.calls: list[tuple[str, dict[str, Any], float]] = []
        self._errors = {method: iter(each) for method, each in (errors or {}).items()}

    async def api_call(self, method: str, *, data: dict[str, Any]) -> FakeResponse:
        self.calls.append((method, data, round(asyncio.get_running_loop().time(), 3)))
        error = next(self._errors.get(method, iter(())), None)
        is_missing = method.startswith("agents.") and method not in self._errors
        if word := "feature_disabled" if is_missing else self.error:
            error = {"error": word}
        if error is not None:
            raise SlackApiError("refused", FakeResponse({"ok": False, **error}))
        if method == "chat.postMessage":
            self.thread.append({"ts": f"{len(self.thread) + 1}.0", "text": data["text"], "thread_ts": "1.0"})
            return FakeResponse({"ok": True, "ts": self.thread[-1]["ts"], "message": self.thread[-1]})
        if method == "chat.startStream":
            self.thread.append({"ts": f"{len(self.thread) + 1}.0", "text": "", "thread_ts": "1.0"})
            return FakeResponse({"ok": True, "ts": self.thread[-1]["ts"]})
        return FakeResponse({"ok": True, "messages": list(self.thread)})

    def calls_of(self, method: str) -> list[dict[str, Any]]:
        return [data for called, data, _ in self.calls if called == method]

    def times_s(self, method: str) -> list[float]:
        return [at_s for called, _, at_s in self.calls if called == method]

    @property
    def texts(self) -> list[str]:
        return [each["text"] for each in self.thread if "text" in each]
