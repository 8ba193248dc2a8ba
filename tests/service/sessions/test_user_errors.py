from __future__ import annotations

import asyncio

import pytest

from orchestrator_interactive.interactions.errors import ConversationFinished, UnreadableState, WriteConflict
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.storage.errors import StoreError
from service.sessions.user_errors import sentence


@pytest.mark.parametrize(
    ("retry_after_s", "wait"),
    [
        (None, "a minute"),
        (float("inf"), "a minute"),
        (-3, "about 2 seconds"),
        (0.4, "about 2 seconds"),
        (61.2, "about 62 seconds"),
        (119, "about 119 seconds"),
        (290, "about 5 minutes"),
        (7200, "about 2 hours"),
        (86_000, "about 24 hours"),
    ],
)
def test_a_rate_limit_names_the_time_to_wait(retry_after_s, wait):
    message = sentence(errors.RateLimitError("slow down", retry_after=retry_after_s))
    assert message == f"The model provider's rate limit is reached. Try again in {wait}."


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (errors.AuthenticationError("x"), "does not accept our API key"),
        (errors.ContextLengthError("x"), "Start a new thread"),
        (errors.ContentFilterError("x"), "Rephrase it"),
        (errors.LLMTimeoutError("x"), "Send a message to try again"),
        (errors.ProviderUnavailableError("x"), "Send a message to try again"),
        (errors.InvalidRequestError("x"), "start a new thread"),
        (errors.ModuleNotFoundError("x"), "not set up correctly"),
        (PermissionError("x"), "The files of this conversation"),
        (WriteConflict("x"), "Another program changed this conversation"),
        (ConversationFinished("x"), "Start a new thread"),
        (StoreError("x"), "cannot save this conversation"),
        (UnreadableState("x"), "cannot be read"),
        (asyncio.QueueFull(), "An internal error occurred"),
    ],
)
def test_each_error_has_a_sentence_with_a_remedy_and_no_internals(error, part):
    message = sentence(error)
    assert part in message
    assert message.endswith(".")
    assert "x" not in message.split()
