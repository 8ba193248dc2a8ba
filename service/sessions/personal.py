"""Keep runs, rules and visits of each person in the store, for their Home tab."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from connector.protocols import AlwaysRule, EndedRun
from service.sessions.budgets import person_collection
from service.store.base import parse_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.sessions.people import AlwaysRules
    from service.store.base import RunStore

_RUN = TypeAdapter(EndedRun)


class StoredPersonalRecords:
    """Implements `connector.protocols.PersonalRecords` with documents of the store.

    Args:
        audit: records that a rule was revoked.
    """

    def __init__(self, store: RunStore, rules: AlwaysRules, audit: Callable[..., None]) -> None:
        self._store = store
        self._rules = rules
        self._audit = audit

    async def add_run(self, team: str, user: str, run: EndedRun) -> None:
        """Keep a run; see the protocol."""
        if run.usage.input_tokens == 0 and run.id in await self._store.documents(_runs(team, user)):
            return
        await self._store.put_document(_runs(team, user), run.id, asdict(run))

    async def runs_of(self, team: str, user: str) -> tuple[EndedRun, ...]:
        """Return the kept runs of a person, the latest first."""
        documents = await self._store.documents(_runs(team, user))
        return tuple(parse_documents(_RUN, documents).values())

    async def rules_of(self, team: str, user: str) -> tuple[AlwaysRule, ...]:
        """Return the rules that a person has made, the latest first."""
        return tuple(
            AlwaysRule(each["id"], str(each["tool"]), str(each["instance"]), str(each.get("conversation", "")))
            for each in await self._rules.all(team)
            if each.get("by") == user
        )

    async def revoke(self, team: str, user: str, rule_id: str) -> bool:
        """Delete a rule that a person has made; return whether it existed."""
        is_theirs = any(each.id == rule_id for each in await self.rules_of(team, user))
        if not is_theirs or not await self._rules.revoke(team, rule_id):
            return False
        self._audit("rule.revoked", rule=rule_id, by=user)
        return True

    async def opened_home(self, team: str, user: str, at_s: float) -> None:
        """Keep when a person opened their Home tab, in seconds since the epoch."""
        await self._store.put_document(_home(team, user), "opened", {"at_s": at_s})

    async def home_opened_s(self, team: str, user: str) -> float:
        """Return when a person last opened their Home tab; 0: never."""
        found = await self._store.documents(_home(team, user))
        return float(found.get("opened", {}).get("at_s", 0.0))

    async def forget(self, team: str, user: str) -> None:
        """Delete all that is kept of a person, and their rules."""
        for rule in await self.rules_of(team, user):
            await self._rules.revoke(team, rule.id)
        for collection in (_runs(team, user), _home(team, user), person_collection(team, user)):
            for name in await self._store.documents(collection):
                await self._store.delete_document(collection, name)


def _runs(team: str, user: str) -> str:
    return f"runs:{team}:{user}"


def _home(team: str, user: str) -> str:
    return f"home:{team}:{user}"
