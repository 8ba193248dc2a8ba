"""The contract of a run store. Each case gets an empty one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from connector.protocols import EntryKind, InboxEntry, LeaseLost, StateChanges, ThreadFacts
from service.store.base import GRACE_S, MAX_DUE_IN_S, RunStore

Case = Callable[[RunStore], Awaitable[None]]


T1 = "T1"
C, D = f"{T1}:C1:1700000000.000100", f"{T1}:C1:1700000000.000200"
LONG_S = 1000.0
# A lease that has run out when it begins.
OVER_S = 0.0

CASES: list[Case] = []


def _case(case: Case) -> Case:
    CASES.append(case)
    return case


def entry(name: object, kind: EntryKind = "message", **data: object) -> InboxEntry:
    return InboxEntry(f"m{name}", kind, data or {"text": f"{name}"})


async def admitted(store: RunStore, conversation_id: str, *names: object) -> None:
    for name in names:
        assert (await store.admit(conversation_id, entry(name), "owl")).is_new


def names_of(entries: tuple[InboxEntry, ...]) -> list[str]:
    return [each.id.removeprefix("m") for each in entries]


async def is_lost(work: Awaitable[object]) -> bool:
    try:
        await work
    except LeaseLost:
        return True
    return False


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    async with asyncio.timeout(seconds):
        yield


async def until_due(store: RunStore, *conversation_ids: str) -> None:
    """Return once these and no others are due."""
    async with within(9):
        while set(await store.due(T1, 1000)) != set(conversation_ids):  # noqa: ASYNC110 - it depends on time only
            await asyncio.sleep(0.05)


async def until_woken(store: RunStore, owner: str) -> list[str]:
    """The next news of an owner."""
    async with within(9):
        while not (news := await store.wait_for_notifications(owner)):
            pass
    return list(news)


@_case
async def fifty_who_admit_at_once_lose_and_double_nothing(store: RunStore) -> None:
    async def admit(number: int) -> bool:
        return (await store.admit(C, entry(number % 40), "owl")).is_new

    assert sum(await asyncio.gather(*map(admit, range(50)))) == 40
    claim = await store.claim(C, "a", LONG_S)
    assert [each.seq for each in claim.entries] == list(range(1, 41))
    assert sorted(names_of(claim.entries), key=int) == [str(number) for number in range(40)]


@_case
async def of_fifty_who_claim_at_once_one_owns_the_conversation(store: RunStore) -> None:
    await admitted(store, C, 1)
    claims = await asyncio.gather(*[store.claim(C, f"owner {number}", LONG_S) for number in range(50)])
    (won,) = [number for number, claim in enumerate(claims) if claim is not None]
    assert (await store.admit(C, entry(2), None)).owner == f"owner {won}"
    await store.write(C, claims[won].token, StateChanges(closed={1: ""}))


@_case
async def fifty_conversations_are_used_at_once(store: RunStore) -> None:
    async def use(number: int) -> None:
        await admitted(store, f"c{number}", 1, 2)
        claim = await store.claim(f"c{number}", "a", LONG_S)
        await store.write(f"c{number}", claim.token, StateChanges(run={"id": number}, closed={1: ""}))
        await store.renew(f"c{number}", claim.token, LONG_S)
        assert not await store.release(f"c{number}", claim.token, 1)
        await store.write(f"c{number}", claim.token, StateChanges(run={}, closed={2: "withdrawn"}))
        assert await store.release(f"c{number}", claim.token, 1)

    await asyncio.gather(*map(use, range(50)))
    assert set(await store.conversations()) == {f"c{number}" for number in range(50)}
    assert await store.due(T1, 100) == []


@_case
async def a_lease_runs_out_by_itself(store: RunStore) -> None:
    await admitted(store, C, 1)
    first = await store.claim(C, "a", 0.3)
    async with within(9):
        while (second := await store.claim(C, "b", LONG_S)) is None:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    assert second.token > first.token


@_case
async def leases_are_renewed_together_and_lost_ones_are_left_out(store: RunStore) -> None:
    by_server: dict[str, dict[str, int]] = {}
    names = [f"{T1}:C1:{number}" for number in range(20)]
    for number, name in enumerate(names):
        await admitted(store, name, *range(number % 3 + 1))
        claim = await store.claim(name, "a", OVER_S)
        assert await store.claim(name, "b", LONG_S) if number % 4 == 0 else claim
        by_server.setdefault(store.server_of(name), {})[name] = claim.token
    for tokens in by_server.values():
        await store.renew(*next(each for each in tokens.items() if names.index(each[0]) % 4), LONG_S)
    found = [await store.renew_all(tokens, LONG_S) for tokens in by_server.values()]
    renewed = {name: last for each in found for name, last in each.items()}
    assert renewed == {name: number % 3 + 1 for number, name in enumerate(names) if number % 4}
    assert await store.due(T1, 100) == []


@_case
async def fetching_gives_what_waits_behind_a_place(store: RunStore) -> None:
    claim = await store.claim(C, "a", LONG_S)
    await admitted(store, C, *range(1, 13))
    await store.write(C, claim.token, StateChanges(closed={5: "", 11: "withdrawn"}))
    assert names_of(await store.fetch(C, claim.token, 3)) == ["4", "6", "7", "8", "9", "10", "12"]
    assert await store.fetch(C, claim.token, 12) == ()


@_case
async def what_was_handed_over_to_rest_is_due_when_it_has_rested(store: RunStore) -> None:
    for conversation_id, due_in_s in ((C, GRACE_S + 0.3), (D, MAX_DUE_IN_S)):
        await admitted(store, conversation_id, 1)
        claim = await store.claim(conversation_id, "a", LONG_S)
        await store.release(conversation_id, claim.token, None, due_in_s)
    assert await store.due(T1, 9) == []
    await until_due(store, C)
    assert (await store.admit(D, entry(2, "stop"), None)).owner is None
    assert names_of((await store.claim(D, "b", LONG_S)).entries) == ["1", "2"]


@_case
async def whoever_admits_has_a_moment_to_claim(store: RunStore) -> None:
    """Held entries start no run; later ones do."""
    await store.admit(C, entry(1), None)
    await store.admit(C, entry(2, "edit"), None)
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(held_seq=2))
    assert await store.release(C, claim.token, 2)
    await admitted(store, D, 1)
    assert await store.due(T1, 9) == []
    await store.admit(C, entry(3, "stop"), None)
    await until_due(store, C, D)
    await admitted(store, D, 2)
    assert D in await store.due(T1, 9)
    assert names_of((await store.claim(D, "a", LONG_S)).entries) == ["1", "2"]
    assert D not in await store.due(T1, 9)


@_case
async def what_has_waited_longest_is_due_first(store: RunStore) -> None:
    names = ["T1:c3", "T1:c1", "T1:c4", "T1:c2"]
    for name in names:
        await admitted(store, name, 1)
        claim = await store.claim(name, "a", LONG_S)
        await store.release(name, claim.token, None)
        await asyncio.sleep(0.005)
    assert await store.due(T1, 9) == names
    assert await store.due(T1, 2) == names[:2]
    await store.claim("T1:c3", "a", LONG_S)
    assert await store.due(T1, 2) == ["T1:c1", "T1:c4"]


@_case
async def many_are_due_at_once(store: RunStore) -> None:
    async def leave(name: str) -> None:
        await admitted(store, name, 1)
        claim = await store.claim(name, "a", OVER_S)
        await store.write(
            name, claim.token, StateChanges(run={"id": 1}) if name < "T1:c2" else StateChanges(closed={1: ""})
        )

    names = {f"T1:c{number}" for number in range(1, 251)}
    await asyncio.gather(*map(leave, names))
    some = {name for name in names if name < "T1:c2"}
    await until_due(store, *some)
    assert len(await store.due(T1, 50)) == 50


@_case
async def what_is_due_is_asked_for_by_workspace(store: RunStore) -> None:
    async def leave(name: str) -> None:
        claim = await store.claim(name, "a", LONG_S)
        await store.write(name, claim.token, StateChanges(run={"id": 1}))
        await store.release(name, claim.token, None)

    foreign = {f"T2:C{number}:1.0" for number in range(250)}
    await asyncio.gather(*map(leave, foreign))
    for name in (C, "T", "T:1", "t1:C1:1.0", "ü%}{:C1:1.0"):
        await leave(name)
    assert await store.due(T1, 9) == [C]
    assert await store.due("T", 9) == ["T", "T:1"]
    assert await store.due("ü%}{", 9) == ["ü%}{:C1:1.0"]
    assert await store.due("T3", 9) == []
    assert set(await store.due("T2", 1000)) == foreign


@_case
async def an_owner_hears_of_what_others_admit(store: RunStore) -> None:
    await store.claim(C, "a", LONG_S)
    await store.claim(D, "b", LONG_S)
    waiting = asyncio.create_task(until_woken(store, "a"))
    await asyncio.sleep(0)
    await admitted(store, C, 1)
    assert await waiting == [C]
    await admitted(store, C, 2, 3)
    await admitted(store, D, 1)
    assert await until_woken(store, "b") == [D]
    heard = await until_woken(store, "a")
    assert set(heard) == {C}
    await store.claim("e", "a", LONG_S)
    await admitted(store, "e", 1)
    assert "e" in await until_woken(store, "a")


@_case
async def nobody_hears_of_what_has_no_owner(store: RunStore) -> None:
    claim = await store.claim(C, "a", LONG_S)
    await store.release(C, claim.token, 0)
    await admitted(store, C, 1)
    assert list(await store.wait_for_notifications("a")) == []


@_case
async def the_agent_is_the_one_that_was_named_last(store: RunStore) -> None:
    assert (await store.thread_of(C)).agent is None
    await store.admit(C, entry(1), None)
    assert (await store.thread_of(C)).agent is None
    await store.admit(C, entry(2), "owl")
    await store.admit(C, entry(3), "fox")
    await store.admit(C, entry(4), None)
    await store.admit(C, entry(2), "owl")
    assert (await store.thread_of(C)).agent == "fox"
    assert (await store.thread_of(D)).agent is None


@_case
async def facts_of_a_thread_only_grow(store: RunStore) -> None:
    await store.learn(C, {"talk": "1.5"})
    assert (await store.thread_of(C)).latest == {}, "the conversation is not known yet"
    await store.admit(C, entry(1), None, {"person:U1": "1.0", "talk": "3.0"})
    await store.admit(C, entry(1), None, {"talk": "9.0"})
    await store.learn(C, {"talk": "2.0", "muted": "2.0", "person:U1": "5.0", "person:U2": "4.0"})
    await store.learn(C, {"person:U2": "3.0"})
    found = await store.thread_of(C)
    assert found.latest == {"person:U1": "1.0", "person:U2": "3.0", "talk": "3.0", "muted": "2.0"}
    assert (found.takes_part("U1", "1.5"), found.takes_part("U1", "1.0"), found.takes_part("U3", "9.0")) == (
        True,
        True,
        False,
    )
    assert (found.is_muted("2.0"), found.is_muted("1.0")) == (True, False)
    await store.learn(C, {"unmuted:3.0": "3.0"})
    found = await store.thread_of(C)
    assert (found.is_muted("2.5"), found.is_muted("3.5")) == (True, False)
    assert (await store.thread_of(D)).latest == {}


@_case
async def only_what_is_over_is_forgotten(store: RunStore) -> None:
    await admitted(store, C, 1, 2)
    assert not await store.forget(C)
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(run={"id": 1}, posts={"1": "x"}, held_seq=2, closed={1: ""}))
    assert not await store.forget(C)
    await store.renew(C, claim.token, OVER_S)
    assert not await store.forget(C)
    await store.renew(C, claim.token, LONG_S)
    await store.write(C, claim.token, StateChanges(run={}))
    assert not await store.forget(C)
    assert await store.release(C, claim.token, 2)
    assert await store.conversations() == [C]
    assert await store.forget(C)
    assert await store.record(C) is None
    assert await store.conversations() == []
    assert await store.thread_of(C) == ThreadFacts()
    assert not await store.forget(C)
    await admitted(store, C, 2)
    again = await store.claim(C, "b", LONG_S)
    assert again.token > claim.token
    assert (names_of(again.entries), again.posts, again.held_seq, again.entries[0].seq) == (["2"], {}, 0, 1)


@_case
async def names_and_texts_may_hold_anything(store: RunStore) -> None:
    names = ["a", "A", "a/b", "a%2Fb", "{a}", "a}{", "a:b", "é", "e\u0301", " ", "🙂", "*", "a\nb", "=", "a=b"]
    data = {"text": "\ud800 \x00\n\"'\\ ü🙂", "=": ["=", {"\n": None}], "": 1.5}
    for name in names:
        for place, each in enumerate(names):
            assert (await store.admit(name, InboxEntry(each, "message", data), each)).is_new, place
        claim = await store.claim(name, name, LONG_S)
        assert [each.id for each in claim.entries] == names
        assert all(each.data == data for each in claim.entries)
        closed = dict.fromkeys(range(1, len(names)), "withdrawn")
        await store.write(
            name, claim.token, StateChanges(posts={name: data}, replaced={len(names): {name: name}}, closed=closed)
        )
        known = await store.record(name)
        assert (known.ends, list(known.order)) == (dict.fromkeys(names[:-1], "withdrawn"), names)
        assert [(each.id, each.data) for each in known.waiting] == [("a=b", {name: name})]
        assert (await store.claim(name, name, LONG_S)).posts == {name: data}
    assert set(await store.conversations()) == set(names)


@_case
async def what_a_cancelled_owner_wrote_is_settled_by_the_next_answer(store: RunStore) -> None:
    claim = await store.claim(C, "a", LONG_S)
    for number in range(1, 31):
        writing = asyncio.create_task(store.write(C, claim.token, StateChanges(held_seq=number)))
        for _ in range(number % 12):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        await store.renew(C, claim.token, LONG_S)
        assert (await store.record(C)).held_seq in (number, number - 1)
        await store.write(C, claim.token, StateChanges(held_seq=number))
        assert (await store.record(C)).held_seq == number
    assert await store.release(C, claim.token, 0)


@_case
async def documents_are_replaced_by_name_and_listed_the_latest_first(store: RunStore) -> None:
    for name, value in (("a", 1), ("b", 2), ("a", 3)):
        await store.put_document("rules", name, {"value": value, "text": "ü\n"})
    await store.put_document("others", "c", {})
    found = await store.documents("rules")
    assert list(found.items()) == [("a", {"value": 3, "text": "ü\n"}), ("b", {"value": 2, "text": "ü\n"})]
    assert await store.delete_document("rules", "b")
    assert not await store.delete_document("rules", "b")
    assert list(await store.documents("rules")) == ["a"]
    assert await store.documents("rules", "a") == {"a": {"value": 3, "text": "ü\n"}}
    assert await store.documents("rules", "b") == await store.documents("nothing") == {}


@_case
async def a_document_is_replaced_or_deleted_only_if_it_is_the_known_one(store: RunStore) -> None:
    first, second, third = ({"value": value, "text": "ü"} for value in (1, 2.5, 3))
    assert not await store.replace_document("rules", "a", first, second)
    assert await store.documents("rules") == {}
    await store.put_document("rules", "a", first)
    for _ in range(2):  # the answer to the first call may have been lost
        assert await store.replace_document("rules", "a", first, second)
    assert not await store.replace_document("rules", "a", first, third)
    assert await store.documents("rules") == {"a": second}
    assert not await store.replace_document("rules", "a", {}, third)
    assert await store.replace_document("rules", "b", {}, third)
    assert await store.documents("rules") == {"b": third, "a": second}
    assert not await store.delete_document("rules", "a", first)
    assert await store.delete_document("rules", "a", second)
    assert not await store.delete_document("rules", "a", second)
    assert await store.documents("rules") == {"b": third}


@_case
async def a_collection_keeps_the_latest_documents(store: RunStore) -> None:
    for number in range(5):
        await store.put_document("runs", f"{number}", {"number": number}, most=3)
    assert list(await store.documents("runs")) == ["4", "3", "2"]
    assert await store.replace_document("runs", "5", {}, {"number": 5})
    assert list(await store.documents("runs")) == ["5", "4", "3", "2"]
    assert await store.replace_document("runs", "6", {}, {"number": 6}, most=3)
    assert list(await store.documents("runs")) == ["6", "5", "4"]


@_case
async def collections_with_documents_are_found_by_the_beginning_of_their_names(store: RunStore) -> None:
    assert await store.collections() == []
    for collection in ("memory:T1:C1", "memory:T2:C1", "memories:T1", "over:T1"):
        for name in ("a", "b"):
            await store.put_document(collection, name, {})
    for name in ("a", "b"):
        await store.delete_document("over:T1", name)
    assert sorted(await store.collections()) == ["memories:T1", "memory:T1:C1", "memory:T2:C1"]
    assert sorted(await store.collections("memory:")) == ["memory:T1:C1", "memory:T2:C1"]
