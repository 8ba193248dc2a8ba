"""The arithmetic of budgets: an account of the amounts spent and reserved in one day or month, as a JSON document.

An account changes only by these functions. Each returns a new document, so that a store can replace the known one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

# Percentages of a budget at which a notice is posted.
NOTICES = (75, 95)
# After this time the process that reserved an amount is dead: the amount counts as spent.
_HELD_S = 3600.0

Per = Literal["person", "channel", "instance", "workspace"]
Period = Literal["day", "month"]
Unit = Literal["usd", "tokens"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The budget of one subject, such as a user: at most so many dollars or tokens in each day or month.

    Args:
        subject: id of the person or channel, or name of the instance; blank for the workspace.
        most: a decimal number.
        zone: IANA name of the time zone in which days begin.
    """

    per: Per
    period: Period
    unit: Unit
    most: str
    subject: str = ""
    zone: str = "UTC"

    @property
    def title(self) -> str:
        """Its name for people, such as "daily budget of this channel ($5.00)"."""
        whose = {"person": "the person who began this", "channel": "this channel", "workspace": "this workspace"}
        often = "daily" if self.period == "day" else "monthly"
        return f"{often} budget of {whose.get(self.per, self.subject)} ({amount(Decimal(self.most), self.unit)})"

    def returns(self, now_s: float) -> str:
        """Return when the next period begins, for people."""
        return f"{self._begin(now_s, 1):%d %b %Y at %H:%M} ({self.zone})"

    def current(self, now_s: float) -> str:
        """Return the name of the period of a time."""
        return self._begin(now_s).isoformat()

    def begin_s(self, now_s: float) -> float:
        """Return when the period of a time began, in seconds since the epoch."""
        return self._begin(now_s).timestamp()

    def _begin(self, now_s: float, later: int = 0) -> datetime:
        begin = datetime.fromtimestamp(now_s, ZoneInfo(self.zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        if self.period == "month":
            begin = begin.replace(day=1)
        for _ in range(later):
            begin = begin + timedelta(days=1) if self.period == "day" else (begin + timedelta(days=32)).replace(day=1)
        return begin


@dataclass(frozen=True, slots=True)
class Account:
    """The amount spent in a period (a decimal number), the reservations by call, and the notices that were given.

    `held` has the amount and the time after which it counts as spent; `told` the conversation of each notice.
    """

    period: str
    spent: str = "0"
    held: Mapping[str, tuple[str, float]] | Any = ()
    told: Mapping[str, str] | Any = ()

    @property
    def total(self) -> Decimal:
        return sum((Decimal(held) for held, _ in dict(self.held).values()), Decimal(self.spent))

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the account."""
        held = {call: list(each) for call, each in dict(self.held).items()}
        return {**asdict(replace(self, held=(), told=())), "held": held, "told": dict(self.told)}


def opened(document: Mapping[str, Any], limit: Limit, now_s: float) -> Account:
    """Return the account of the current period.

    If the document is of an earlier period, it has only the reservations of calls that were in flight at its end: a
    call counts in the period in which it is settled.
    """
    current, begin_s = limit.current(now_s), limit.begin_s(now_s)
    held = {call: (each[0], each[1]) for call, each in document.get("held", {}).items() if each[1] >= begin_s}
    is_current = document.get("period") == current
    dead = {call for call, (_, until_s) in held.items() if until_s < now_s}
    spent = sum((Decimal(held[call][0]) for call in dead), Decimal(document["spent"] if is_current else 0))
    kept = {call: held[call] for call in held.keys() - dead}
    return Account(current, str(spent), kept, document["told"] if is_current else {})


def reserved(account: Account, limit: Limit, call: str, wanted: Decimal, now_s: float) -> Account | None:
    """Return the account with an amount reserved for a call; `None` if the rest of the budget is smaller.

    An amount of 0 always has room: its call can be settled although the budget is used up.
    """
    if call in account.held:
        return account
    if wanted and account.total + wanted > Decimal(limit.most):
        return None
    return replace(account, held={**account.held, call: (str(wanted), now_s + _HELD_S)})


def settled(account: Account, limit: Limit, call: str, spent: Decimal, conversation: str) -> Account:
    """Return the account after a call that has spent an amount, with the notice that becomes due, if any."""
    held = {each: kept for each, kept in account.held.items() if each != call}
    if len(held) == len(account.held):  # settled before, or counted as spent
        return account
    total = Decimal(account.spent) + spent
    reached = [each for each in NOTICES if total * 100 >= Decimal(limit.most) * each]
    told = dict(account.told)
    if reached and str(reached[-1]) not in told:  # one notice for both, if one call passes both
        told |= {str(each): conversation if each == reached[-1] else told.get(str(each), "") for each in reached}
    return replace(account, spent=str(total), held=held, told=told)


def amount(value: Decimal, unit: Unit) -> str:
    """Return an amount for people."""
    return f"${value:,.2f}" if unit == "usd" else f"{value:,.0f} tokens"
