"""A failed model call is repeated, handed to another provider, or made smaller, as the rules have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.kernel.contracts.errors import (
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
)
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .loop_options import Terms
    from .runs import RunRecord

    Data = dict[str, Any]

_LONGEST_WAIT_S = 60.0
_LONGEST_BACKOFF_S = 30.0
_SLACK_S = 1e-6
_FINAL = (ContentFilterError, InvalidRequestError, ContextLengthError)


class Patience:
    """Says after each failure what is to happen, and looks whether it does."""

    def __init__(self, scene: Scenario, terms: Terms) -> None:
        self._scene = scene
        self._terms = terms
        self._budgets: set[str] = set()
        self.begin()

    def begin(self) -> None:
        self._names = list(self._terms.providers)
        self._failures = 0
        self._shrunk = False
        self._next: Literal["retry", "fallback", "smaller", "give up"] | None = None
        self._error: BaseException | None = None
        self._not_before_s = 0.0
        self._told: list[str] = []

    def asked(self, name: str, token_budget: int | None) -> None:
        if name != self._names[0]:
            self._scene.blame(f"The provider '{name}' was asked; it was the turn of '{self._names[0]}'.")
        if self._next not in {None, "smaller"}:
            self._scene.blame(f"After {self._error!r} the model was asked again; to come was: {self._next}.")
        if self._next == "smaller":
            self._budgets.add(name)
        if name in self._budgets and token_budget is None:
            self._scene.blame(f"A request to '{name}' was too long, and this one may be as long.")
        if self._scene.now() < self._not_before_s - _SLACK_S:
            self._scene.blame(f"The model was asked {self._not_before_s - self._scene.now():.3f} s too early.")
        self._next = None

    def forget(self) -> None:
        """The process was killed, and knew by heart only what was too long."""
        self._budgets.clear()

    def heard(self, event: str, data: Data) -> None:
        match event:
            case "provider:error":
                self._failed(data["error"])
            case "provider:retry":
                self._retries(data)
            case "provider:fallback":
                self._turns(data)
            case "provider:response":
                self._failures, self._shrunk = 0, False

    def progressed(self, event: str, data: Data) -> None:
        """People are told of retries and of other providers, each after the hooks."""
        if event == "retrying":
            self._scene.count("model call retried")
            self._told.remove(f"retry {data['attempt']}")
            if not data["attempt"] <= data["max_attempts"] == self._terms.max_retries:
                self._scene.blame(f"People are told of attempt {data['attempt']} of {data['max_attempts']}.")
        if event == "fallback":
            self._scene.count("another model asked")
            self._told.remove(f"fallback {data['to']}")

    def returned(self, run: RunRecord) -> None:
        if run.cut_s is not None or run.was_denied or run.was_out_of_time or isinstance(run.error, InjectedFault):
            return
        if self._told:
            self._scene.blame(f"People were not told of: {', '.join(self._told)}.")
        if self._next == "give up" and repr(run.error) != repr(self._error):
            self._scene.blame(f"The run ended with {run.error!r}; what failed was {self._error!r}.")
        elif self._next not in {None, "give up"}:
            self._scene.blame(f"The run ended after {self._error!r}; to come was: {self._next}.")

    def _failed(self, error: BaseException) -> None:
        self._error = error
        waits = isinstance(error, LLMError) and error.retryable and (error.retry_after or 0) <= _LONGEST_WAIT_S
        if isinstance(error, ContextLengthError) and not self._shrunk:
            self._scene.count("request made smaller")
            self._shrunk, self._next = True, "smaller"
        elif waits and self._failures < self._terms.max_retries:
            self._next = "retry"
        elif len(self._names) > 1 and not isinstance(error, _FINAL):
            self._next = "fallback"
        else:
            self._next = "give up"

    def _retries(self, data: Data) -> None:
        self._expect("retry", data)
        backoff_s = min(self._terms.retry_base_delay_s * 2.0**self._failures, _LONGEST_BACKOFF_S)
        wished_s = getattr(self._error, "retry_after", None)
        least_s, most_s = (backoff_s / 2, backoff_s) if wished_s is None else (wished_s, wished_s + backoff_s / 2)
        if not least_s <= data["delay_s"] <= most_s:
            self._scene.blame(f"A wait of {data['delay_s']:.3f} s; it is to be {least_s:.3f} to {most_s:.3f} s.")
        self._failures += 1
        if data["attempt"] != self._failures:
            self._scene.blame(f"Attempt {data['attempt']} is told of; it is number {self._failures}.")
        self._not_before_s = self._scene.now() + data["delay_s"]
        self._told.append(f"retry {data['attempt']}")

    def _turns(self, data: Data) -> None:
        self._expect("fallback", data)
        self._names.pop(0)
        self._failures, self._shrunk = 0, False
        if data["to"] != self._names[0]:
            self._scene.blame(f"The next provider is '{data['to']}'; it was the turn of '{self._names[0]}'.")
        self._told.append(f"fallback {data['to']}")

    def _expect(self, step: str, data: Data) -> None:
        if self._next != step:
            self._scene.blame(f"After {self._error!r} came a {step}; to come was: {self._next}.")
        if data["provider"] != self._names[0]:
            self._scene.blame(f"A {step} is told of '{data['provider']}'; it was the turn of '{self._names[0]}'.")
        self._next = None
