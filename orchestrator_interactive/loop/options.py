"""The options of the loop in a mount plan."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - pydantic reads the annotation at run time

from pydantic import Field

from orchestrator_interactive.config import Options


class LoopOptions(Options):
    """Options of the loop in a mount plan.

    Args:
        max_iterations: answers of the model with tools in one run; the one after them is asked for without.
        max_cost_usd: what one run may cost, where the provider says what its calls do.
        max_tokens: tokens that one run may use up, read and written.
        max_duration_s: how long one run may take, in seconds, until it has to come to its last answer; for that it has
            a minute more.
        force_respond_tools: after one of these the model must answer in words.
        tool_timeout_s: how long a tool call may take, in seconds, where the tool has no `timeout_s` of its own.
        max_parallel_tools: tool calls of one answer that run side by side; the others wait in order.
        max_calls_per_answer: tool calls of one answer that are run; the others fail, and the model reads why.
        max_result_chars: characters of a tool's result that the model reads; the log keeps the whole, up to a limit.
        stop_grace_s: how long running tools may go on after a graceful stop, in seconds.
        stall_timeout_s: how long a model call may be silent, in seconds.
        max_retries: how often a failed model call is repeated before another provider is asked.
        retry_base_delay_s: the wait before the first repetition, in seconds; it doubles each time.
        max_waiting: messages that may wait for the running loop.
        extended_thinking: passed to the provider with each model call, as the keyword argument of this name.
        default_provider: name of the provider to ask first; the first mounted one where it is not set.
    """

    max_iterations: int = Field(default=100, ge=1)
    max_cost_usd: Decimal | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_duration_s: float | None = Field(default=None, gt=0)
    force_respond_tools: frozenset[str] = frozenset({"dispatch_worker"})
    tool_timeout_s: float = Field(default=600, gt=0)
    max_parallel_tools: int = Field(default=8, ge=1)
    max_calls_per_answer: int = Field(default=64, ge=1)
    max_result_chars: int = Field(default=100_000, ge=100)
    stop_grace_s: float = Field(default=0.5, ge=0)
    stall_timeout_s: float = Field(default=120, gt=0)
    max_retries: int = Field(default=3, ge=0)
    retry_base_delay_s: float = Field(default=1.0, ge=0)
    max_waiting: int = Field(default=100, ge=1)
    extended_thinking: bool = False
    default_provider: str | None = None
