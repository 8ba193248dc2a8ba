"""Keep the accounts of `hooks-budget` in the run store, and tell threads when a budget is nearly used up."""

from __future__ import annotations

import time
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from connector.inbound.unattended import notice_entry
from orchestrator_interactive.modules.hooks_budget import refusal
from orchestrator_interactive.modules.hooks_budget.ledger import Account, Limit, amount, opened, reserved, settled
from service.store.base import thread_of, workspace_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from connector.protocols import InboxEntry
    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction
    from service.store.base import RunStore

_LIMITS = TypeAdapter(list[Limit])
_NOTICE = "💰 {percent} % of the {title} is used: {spent}. It returns on {returns}."


class StoredBudgets:
    """The accounts of all workspaces: a collection of documents for each subject.

    Args:
        admit: adds a notice to the inbox of a conversation.
        now_s: seconds since the epoch.
    """

    def __init__(
        self,
        store: RunStore,
        admit: Callable[[str, InboxEntry], Awaitable[object]],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._admit = admit
        self._now_s = now_s

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`."""
        return {"budget.reserve": self._reserve, "budget.settle": self._settle}

    async def _reserve(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve the amounts of a `call` in the accounts of all `limits`, or in none."""
        limits, call = _LIMITS.validate_python(arguments["limits"]), arguments["call"]
        for count, limit in enumerate(limits):
            wanted, now_s = Decimal(arguments["amounts"][limit.unit]), self._now_s()

            def change(account: Account, limit: Limit = limit, wanted: Decimal = wanted) -> Account | None:
                return reserved(account, limit, call, wanted, self._now_s())

            if await self._change(key, limit, change) is None:
                for earlier in limits[:count]:
                    await self._release(key, earlier, call)
                return {"refused": refusal(limit, now_s)}
        return {}

    async def _settle(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Settle a `call`; repeating this has no effect."""
        thread, call = thread_of(key.conversation_id), arguments["call"]
        for limit in _LIMITS.validate_python(arguments["limits"]):
            spent = Decimal(arguments["amounts"][limit.unit])

            def change(account: Account, limit: Limit = limit, spent: Decimal = spent) -> Account:
                return settled(account, limit, call, spent, thread)

            account = await self._change(key, limit, change)
            for percent, conversation in dict(account.told).items() if account is not None else ():
                if conversation == thread and account is not None:  # the entry's id makes it one notice
                    await self._tell(limit, account, percent, thread)
        return {}

    async def _release(self, key: Key, limit: Limit, call: str) -> None:
        await self._change(key, limit, lambda account: settled(account, limit, call, Decimal(), ""))

    async def _change(self, key: Key, limit: Limit, change: Callable[[Account], Account | None]) -> Account | None:
        """Replace an account by what `change` makes of it, also while others change it; `None`: it refuses."""
        collection = _collection(workspace_of(key.conversation_id), limit)
        name = f"{limit.period}:{limit.unit}"
        while True:
            known = (await self._store.documents(collection)).get(name, {})
            account = change(opened(known, limit, self._now_s()))
            if account is None:
                return None
            if await self._store.replace_document(collection, name, known, account.to_dict()):
                return account

    async def _tell(self, limit: Limit, account: Account, percent: str, conversation: str) -> None:
        returns, spent = limit.returns(self._now_s()), amount(Decimal(account.spent), limit.unit)
        text = _NOTICE.format(percent=percent, title=limit.title, spent=spent, returns=returns)
        key = ":".join(("budget", *(str(each) for each in asdict(limit).values()), account.period, percent))
        await self._admit(conversation, notice_entry(conversation, key, text, self._now_s()))


def _collection(team: str, limit: Limit) -> str:
    return f"budget:{team}:{limit.per}:{limit.subject}"


def person_collection(team: str, user: str) -> str:
    """Return the collection with the accounts of a person."""
    return f"budget:{team}:person:{user}"
