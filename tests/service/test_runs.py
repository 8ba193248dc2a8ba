from __future__ import annotations

import asyncio

import pytest

from connector.protocols import InboxEntry, LeaseLost, StateChanges
from orchestrator_interactive.storage.errors import StoreUnavailable
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.runs import StoredRuns

HERE, THERE = "T:C:1.0", "T:C:2.0"
RUN = StateChanges(run={"id": "r"})


async def abandon(store, *conversations):
    """Leave a run in each conversation without an owner."""
    for conversation_id in conversations:
        claim = await store.claim(conversation_id, "gone", 10)
        await store.write(conversation_id, claim.token, StateChanges(run={"id": conversation_id}))
        await store.release(conversation_id, claim.token, None)


async def test_concurrent_messages_are_stored_once_and_in_order(store, process):
    async with process() as one:
        assert await asyncio.gather(*(one.admit(n) for n in range(20))) == [True] * 20
        assert not await one.admit(3)
        lease = await one.owns()
    assert [(entry.id, entry.seq) for entry in lease.claim.entries] == [(f"T:C:{n}", n + 1) for n in range(20)]
    assert lease.claim.entries[3].data == {"text": "message 3"}


async def test_the_process_that_stores_a_message_without_an_owner_is_woken(store, process):
    async with process() as one, process() as two:
        await one.admit(1)
        assert one.woken == [HERE]
        assert (await two.runs.thread_of(HERE)).agent == "alpha"
        assert (await two.runs.thread_of(THERE)).agent is None


async def test_only_the_owner_is_woken_by_a_message_stored_elsewhere_within_a_second(store, process):
    async with process() as one, process() as two:
        lease = await one.owns()
        two.woken.clear()
        await two.admit(1)
        await one.wakes(within_s=1)
        assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]
        assert two.woken == []


async def test_a_lost_notification_is_made_up_for_by_the_next_renewal(store, process):
    async def take_notifications():
        while True:
            await store.wait_for_notifications("one")

    async with process() as one:
        lease = await one.owns()
        taking = asyncio.create_task(take_notifications())
        await store.admit(HERE, InboxEntry("T:C:1", "message", {}), None)
        await one.wakes(within_s=2.5)
        assert await lease.fetch(0)
        taking.cancel()


async def test_an_owner_renews_its_lease_until_it_releases_it(store, process):
    async with process(lease_s=0.5) as one, process(lease_s=0.5) as two:
        lease = await one.owns()
        losing = asyncio.create_task(lease.lost())
        await lease.write(RUN)
        for _ in range(8):
            assert await two.runs.claim(HERE) is None
            await asyncio.sleep(0.2)  # longer than the lease in total
        assert not losing.done()
        assert two.woken == []
        losing.cancel()


async def test_a_lease_is_not_released_while_an_unseen_message_is_pending(store, process):
    async with process() as one, process() as two:
        await one.admit(1)
        lease = await one.owns()
        seen = lease.claim.entries[-1].seq
        await two.admit(2)
        assert not await lease.release(seen)
        (newer,) = await lease.fetch(seen)
        assert await two.runs.claim(HERE) is None
        await lease.write(StateChanges(closed={seen: "", newer.seq: "withdrawn"}))
        assert await lease.release(newer.seq)
        other = await two.owns()
        assert other.claim.entries == ()
        assert other.claim.token > lease.claim.token


async def test_a_handed_over_conversation_wakes_another_process_with_its_state(store, process):
    async with process() as one, process() as two:
        await one.admit(1)
        lease = await one.owns()
        await lease.write(StateChanges(run={"id": "r"}, posts={"1": {"text": "one"}}))
        two.woken.clear()
        await lease.hand_over()
        await two.wakes(within_s=2.5)
        claim = (await two.owns()).claim
    assert (claim.run, claim.posts, len(claim.entries)) == ({"id": "r"}, {"1": {"text": "one"}}, 1)


async def test_a_process_hands_over_its_conversations_when_it_ends(store, process):
    async with process() as two:
        async with process() as one:
            lease = await one.owns()
            await lease.write(RUN)
        async with asyncio.timeout(1):
            await lease.lost()
        await two.wakes(within_s=2.5)
        assert (await two.owns()).claim.run == {"id": "r"}
    with pytest.raises(LeaseLost):
        await lease.write(StateChanges(run={}))


async def test_a_lost_lease_reports_it_and_refuses_every_step(store, process):
    async with process() as one, process(lease_s=0.2) as two:
        stolen = await store.claim(HERE, "one", 0.01)
        lease = await one.owns()
        assert lease.claim.token > stolen.token
        again = await one.owns()
        async with asyncio.timeout(1):
            await lease.lost()
        for step in (lease.fetch(0), lease.write(StateChanges(run={})), lease.release(0), lease.hand_over()):
            with pytest.raises(LeaseLost):
                await step
        assert await two.runs.claim(HERE) is None
        await again.write(StateChanges(run={}))


async def test_a_lease_is_not_confirmed_during_and_after_its_hand_over(store, process):
    async with process() as one:
        lease = await one.owns()
        await lease.confirm()
        handing_over = asyncio.create_task(lease.hand_over())
        await asyncio.sleep(0)  # the hand-over has started
        with pytest.raises(LeaseLost):
            await lease.confirm()
        await handing_over
        with pytest.raises(LeaseLost):
            await lease.confirm()


async def test_a_process_is_woken_for_every_abandoned_conversation(store, process):
    conversations = [f"T:C:{number}.5" for number in range(120)]
    await abandon(store, *conversations)
    async with process() as one:
        claims = []
        one.runs.watch("T", lambda each: claims.append(asyncio.create_task(one.runs.claim(each))))
        for conversation_id in conversations:
            await one.wakes(conversation_id, within_s=3)
        leases = [lease for lease in await asyncio.gather(*claims) if lease is not None]
    assert {lease.conversation_id for lease in leases} == set(conversations)


async def test_a_process_with_the_most_owned_conversations_looks_for_no_more(store, process):
    conversations = [f"T:C:{number}.5" for number in range(5)]
    await abandon(store, *conversations)
    async with process(most_owned=3) as one:
        leases = [await one.runs.claim(each) for each in conversations[:3]]
        await asyncio.sleep(0.3)  # the first look may come before the claims
        one.woken.clear()
        await asyncio.sleep(1.3)  # it looks again
        assert one.woken == []
        await leases[0].write(StateChanges(run={}))
        await leases[0].release(0)
        await one.wakes(conversations[3])
        assert conversations[4] not in one.woken


async def test_during_an_outage_a_dead_process_is_succeeded_one_lease_later(store):
    gone = await store.claim(HERE, "gone", 0.05)
    await store.write(HERE, gone.token, RUN)
    policy = StoreRetryPolicy()

    async def fail():
        raise StoreUnavailable

    async with StoredRuns(store, "here", 0.3, policy) as runs:
        runs.watch("T", lambda _: None)
        waiting = asyncio.create_task(policy.call(fail))
        await asyncio.sleep(0)
        assert policy.is_unavailable
        await asyncio.sleep(0.1)  # the lease has expired
        assert await runs.claim(HERE) is None
        async with asyncio.timeout(5):
            while (lease := await runs.claim(HERE)) is None:  # noqa: ASYNC110 - no event at expiry
                await asyncio.sleep(0.02)
        assert policy.is_unavailable
        assert lease.claim.run == {"id": "r"}
        waiting.cancel()


async def test_writes_take_effect_in_their_order(store, process):
    async with process() as one:
        lease = await one.owns()
        await asyncio.gather(*(lease.write(StateChanges(run={"step": n})) for n in range(30)))
        await lease.hand_over()
        assert (await one.owns()).claim.run == {"step": 29}


async def test_a_release_during_a_renewal_releases_the_lease(store, process):
    async with process(lease_s=0.02) as one, process() as two:
        for number in range(20):
            lease = await one.owns(f"T:C:{number}")
            await asyncio.sleep(0.003 * (number % 4))  # a random point of a renewal
            assert await lease.release(0)
            assert await two.runs.claim(f"T:C:{number}") is not None


async def test_conversations_of_other_workspaces_are_neither_claimed_nor_changed(store, process):
    foreign = [f"T2:C:{number}.5" for number in range(120)]
    await abandon(store, *foreign, HERE)
    before = [await store.record(each) for each in foreign]
    async with process() as one:
        await one.wakes(HERE)
        assert await one.admit(1, foreign[0])
        assert await one.runs.claim(foreign[0]) is None
        assert set(one.woken) == {HERE}
        assert [await store.record(each) for each in foreign[1:]] == before[1:]
        one.runs.watch("T2", lambda _: None)
        lease = await one.runs.claim(foreign[0])
        assert (lease.claim.run, len(lease.claim.entries)) == ({"id": foreign[0]}, 1)
