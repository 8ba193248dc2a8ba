"""Invariants of approvals and questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from simulated.service.agent import ToolCallRecord
from simulated.service.slack import OTHER_BOT
from simulated.service.store_observer import StoredRequest, StoreObserver

from .evidence import Evidence


def approved(environment: Any) -> Iterator[str]:
    """A call with side effects runs only after a valid answer to exactly this call, or by a rule made by such a one."""
    if environment.approvals is None:
        return
    observer: StoreObserver = environment.observer
    calls: Iterable[ToolCallRecord] = environment.agents.tool_calls
    for call in (each for each in calls if each.tool == "act"):
        before = [each for each in observer.requests if each.at_s <= call.at_s]
        own = [each for each in before if each.about == call.call]
        if own and not any(each.data["has_begun"] for each in own):
            yield f"{call.call} ran before its beginning was stored."
        if not any(_allows(each, environment) for each in own) and not any(
            each.data["answer"] and each.data["answer"]["always"] and _allows(each, environment) for each in before
        ):
            yield f"{call.call} ran without a valid approval."


def _allows(stored: StoredRequest, environment: Any) -> bool:
    """Return whether enough allowed users have clicked to allow it."""
    answer, request, observer = stored.data["answer"], stored.data["request"], environment.observer
    if not answer or answer["kind"] != "click" or list(answer["chosen"]) != [0] or not request["is_approval"]:
        return False
    clicks = {
        (each["by"], each["run"], each["key"])
        for each in observer.clicks
        if list(each["chosen"]) == [0] and not each["text"]
    }
    needed = 2 if environment.approvals["unmarked"] == "ask-two" else 1
    voters = {user for user in answer["by"] if (user, stored.run, stored.data["key"]) in clicks}
    # The owner may be a bot, which clicks on nothing: then all who take part may.
    if environment.approvals["approvers"] == "owner" and needed == 1 and stored.owner != OTHER_BOT:
        voters &= {stored.owner}
    return len(voters) >= needed


def settled(case: Evidence) -> Iterator[str]:
    """No message has buttons of a request when its run has ended."""
    for post in case.posts:
        if ":ask:" in post.key and post.controls:
            yield f"The buttons of {post.key} are left."


def asked_once(case: Evidence) -> Iterator[str]:
    """A request is shown by one message."""
    keys = [post.key for post in case.posts if ":ask:" in post.key]
    for key in set(keys):
        if keys.count(key) > 1:
            yield f"{key} is asked {keys.count(key)} times."
