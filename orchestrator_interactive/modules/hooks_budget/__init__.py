"""`hooks-budget`: limit what model calls cost, or their tokens, per person, channel, instance and workspace.

Before a call its estimate is reserved, and after it its usage is settled. Where the service keeps the accounts, they
hold over all its processes; elsewhere they are those of this process.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, Self
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from pydantic import Field, field_validator, model_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.loop.outcome import usage_from_dict
from orchestrator_interactive.modules.hooks_budget.ledger import Account, Limit, Per, Period, opened, reserved, settled
from orchestrator_interactive.transcript.rows import estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator_interactive.kernel.contracts.messages import Usage
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.loop.outcome import UsageTotals

__all__ = ["BudgetOptions", "mount", "refusal"]

log = structlog.get_logger(__name__)

# After the hooks that change a request, and below the time limit of hooks.
_PRIORITY = 950
_DECIDED_WITHIN_S = 30.0
_MILLION = 1_000_000
_UNDECIDED = "The budget cannot be checked now. Try again later."

# The accounts of sessions without a service, by subject and period.
_accounts: dict[str, dict[str, Any]] = {}


class BudgetLimit(Options):
    """One budget; its amount is `usd` or `tokens`.

    Args:
        per: whose budget it is: of each `person` who begins runs, each `channel`, each `instance`, or the `workspace`.
        period: `day` or `month`.
        usd: dollars in a period.
        tokens: tokens in a period, read and written.
    """

    per: Per
    period: Period
    usd: Decimal | None = Field(None, gt=0)
    tokens: int | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _has_one_amount(self) -> Self:
        if (self.usd is None) == (self.tokens is None):
            raise ValueError("give either `usd` or `tokens`")
        return self

    def limit(self, subject: str, zone: str) -> Limit:
        unit: Literal["usd", "tokens"] = "tokens" if self.usd is None else "usd"
        return Limit(self.per, self.period, unit, str(self.tokens if self.usd is None else self.usd), subject, zone)


class BudgetOptions(Options):
    """Options of `hooks-budget`.

    Args:
        limits: the budgets; a call needs room in each one that applies.
        timezone: IANA name of the time zone in which days and months begin.
        output_tokens: tokens that are reserved for an answer.
        usd_per_million_tokens: price for reservations until a call has cost something, and for models without prices.
    """

    limits: tuple[BudgetLimit, ...] = Field(min_length=1)
    timezone: str = "UTC"
    output_tokens: int = Field(default=4_000, gt=0)
    usd_per_million_tokens: Decimal = Field(default=Decimal(15), gt=0)

    @field_validator("timezone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError) as e:
            raise ValueError(f"{name!r} is no time zone; write one such as Europe/Berlin") from e
        return name


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
    """Register the hooks. Returns a function that unregisters them.

    Uses these capabilities, if they exist: `approvals.facts`, which returns where and for whom the session works;
    `budget.reserve` and `budget.settle`, which change the accounts (see `BudgetHook`).

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    hook = BudgetHook(coordinator, validate(BudgetOptions, config, "hooks-budget"))
    handlers = {
        events.PROVIDER_REQUEST: hook.on_request,
        events.PROVIDER_RESPONSE: hook.on_response,
        events.PROVIDER_ERROR: hook.on_error,
        events.EXECUTION_END: hook.on_end,
        events.CONTEXT_POST_COMPACT: hook.on_compacted,
    }
    register = coordinator.hooks.register
    ends = [register(event, each, priority=_PRIORITY, name="hooks-budget") for event, each in handlers.items()]

    def unregister() -> None:
        for end in ends:
            end()

    return unregister


class BudgetHook:
    """Reserves and settles the calls of one session, which makes one at a time."""

    def __init__(self, coordinator: ModuleCoordinator, options: BudgetOptions) -> None:
        self._coordinator = coordinator
        self._options = options
        self._call = ""
        self._limits: list[Limit] = []
        self._input_tokens = 0
        self._usd_per_token = options.usd_per_million_tokens / _MILLION

    async def on_request(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Reserve the estimate of a call; deny the call if a budget has no room for it."""
        await self._settle(0, Decimal())  # the call was repeated without an answer
        self._input_tokens = sum(map(estimate, data.get("messages") or ()))
        self._limits = self._applicable()
        if not self._limits:
            return HookResult()
        self._call = uuid4().hex
        tokens = self._input_tokens + self._options.output_tokens
        with ErrorBoundary(log, "budget.unchecked"):
            async with asyncio.timeout(_DECIDED_WITHIN_S):
                if reason := await self._change("reserve", self._call, tokens, tokens * self._usd_per_token):
                    self._call = ""
                    log.info("budget.used_up", reason=reason)
                    return HookResult(action="deny", reason=reason)
            return HookResult()
        return HookResult(action="deny", reason=_UNDECIDED)

    async def on_response(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Settle a call by its usage; one without a reported usage counts its request as estimated."""
        usage = data.get("usage")
        if usage is None:
            await self._settle_request()
            return HookResult()
        tokens, cost_usd = self._used(usage)
        if usage.cost_usd is not None and tokens:
            self._usd_per_token = cost_usd / tokens
        await self._settle(tokens, cost_usd)
        return HookResult()

    async def on_error(self, event: str, data: dict[str, Any]) -> HookResult:
        """Settle a call that failed: it is free if the provider refused it, or its answer had not begun."""
        if data.get("usage") is not None or data.get("has_begun"):
            return await self.on_response(event, data)
        await self._settle(0, Decimal())
        return HookResult()

    async def on_end(self, _event: str, _data: dict[str, Any]) -> HookResult:
        """Settle a call that was stopped: its request counts as estimated."""
        await self._settle_request()
        return HookResult()

    async def on_compacted(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Charge for the summary of a compaction. Nothing is reserved before it: only its context knows the request."""
        if (given := data.get("usage")) is not None:
            self._limits, call = self._applicable(), uuid4().hex
            with ErrorBoundary(log, "budget.unsettled"):
                await self._change("reserve", call, 0, Decimal())
                await self._change("settle", call, *self._used(usage_from_dict(given)))
        return HookResult()

    def _used(self, usage: Usage | UsageTotals) -> tuple[int, Decimal]:
        """Return the tokens and the dollars of a usage."""
        tokens = usage.input_tokens + usage.output_tokens
        known = usage.cost_usd
        return tokens, tokens * self._options.usd_per_million_tokens / _MILLION if known is None else known

    def _applicable(self) -> list[Limit]:
        get_facts, found = self._coordinator.get_capability("approvals.facts"), []
        facts: Mapping[str, str] = {} if get_facts is None else get_facts()
        for each in self._options.limits:
            subject = "" if each.per == "workspace" else facts.get(each.per, "")
            if subject or each.per == "workspace":
                found.append(each.limit(subject, self._options.timezone))
        return found

    async def _settle_request(self) -> None:
        await self._settle(self._input_tokens, self._input_tokens * self._usd_per_token)

    async def _settle(self, tokens: int, usd: Decimal) -> None:
        if self._call:
            with ErrorBoundary(log, "budget.unsettled"):
                await self._change("settle", self._call, tokens, usd)
            self._call = ""

    async def _change(self, verb: str, call: str, tokens: int, usd: Decimal) -> str:
        """Reserve or settle a call in all accounts; return why it is refused, blank: it is not."""
        capability = self._coordinator.get_capability(f"budget.{verb}")
        limits, amounts = self._limits, {"tokens": str(tokens), "usd": str(usd)}
        if capability is not None:
            given = [asdict(each) for each in limits]
            found = await capability(call=call, limits=given, amounts=amounts)
            return str(found.get("refused") or "")
        now_s = time.time()
        accounts = [opened(_accounts.get(_name(each), {}), each, now_s) for each in limits]
        changed: list[Account | None] = []
        for account, each in zip(accounts, limits, strict=True):
            wanted = Decimal(amounts[each.unit])
            if verb == "settle":
                changed.append(settled(account, each, call, wanted, ""))
            else:
                changed.append(reserved(account, each, call, wanted, now_s))
        if None in changed:
            return refusal(limits[changed.index(None)], now_s)
        _accounts.update({_name(each): new.to_dict() for each, new in zip(limits, changed, strict=True) if new})
        return ""


def refusal(limit: Limit, now_s: float) -> str:
    """Return the sentence about a budget that has no room for a call."""
    return f"The {limit.title} is used up. It returns on {limit.returns(now_s)}."


def _name(limit: Limit) -> str:
    return f"{limit.per}:{limit.subject}:{limit.period}:{limit.unit}"
