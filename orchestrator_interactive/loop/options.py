"""The options of the loop in a mount plan."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - pydantic reads the annotation at run time

from pydantic import Field

from orchestrator_interactive.config import Options


class LoopOptions(Options):
    """Options of the loop in a mount plan.

    Args:
        max_iterations: turns with tool calls in one run; the model call after them offers no tools.
        max_cost_usd: cost limit of one run, in US dollars; applies if the provider reports costs.
        max_tokens: limit of input plus output tokens of one run.
        max_duration_s: duration of one run, in seconds, after which the next answer is the last; it has 60 s more.
        force_respond_tools: tools after which the model must answer in text.
        tool_timeout_s: time limit of a tool call, in seconds, if the tool has no `timeout_s`.
        max_parallel_tools: tool calls of one answer that run in parallel; the others wait in order.
        max_calls_per_answer: tool calls of one answer that run; the others fail with a reason for the model.
        max_result_chars: characters of a tool result that the model reads; the log keeps more.
        stop_grace_s: time for running tools to finish after a graceful stop, in seconds.
        stall_timeout_s: longest time without data from a model call, in seconds.
        max_retries: retries of a failed model call before the fallback to another provider.
        retry_base_delay_s: delay before the first retry, in seconds; it doubles each time.
        max_waiting: limit of pending injections.
        extended_thinking: passed to the provider with each model call, as the keyword argument of this name.
        default_provider: name of the provider to call first; default: the first mounted one.
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
