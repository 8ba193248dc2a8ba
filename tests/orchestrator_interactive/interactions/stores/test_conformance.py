"""The contract of a log store, tested with every store."""

import asyncio

import pytest
from stored_logs import KEY, TREE, indices, plant, state, states

from orchestrator_interactive.interactions.errors import Fenced, WriteConflict
from orchestrator_interactive.interactions.records import Flow, Key, Node, OpenCall
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.tree import Piece
from orchestrator_interactive.storage.errors import StoreError

OTHER = Key(KEY.conversation_id, "beta")


async def test_a_log_that_does_not_exist_is_empty_and_takes_no_later_version(store):
    with pytest.raises(WriteConflict):
        await store.commit(KEY, Change(1, 1, 1000.0, nodes=states(0, 1)))
    with pytest.raises(WriteConflict):
        await store.remove(KEY, 1)
    await store.remove(KEY, 0)
    assert await store.load(KEY) is None
    assert await store.read(KEY, 0, 0, 10) == []
    assert await store.keys() == []


async def test_a_read_returns_what_a_commit_wrote(store):
    nodes = states(0, 3)
    await plant(store, KEY, nodes)
    log = await store.load(KEY)
    assert (log.version, log.tree) == (1, TREE.with_end(3, 1000.0))
    assert await store.read(KEY, 0, 0, 3) == nodes


async def test_end_and_time_of_the_current_branch_are_updated_without_a_new_tree(store):
    await plant(store, KEY, states(0, 3))
    forked, _ = TREE.with_end(3, 1000.0).forked(0, 2, "side", 1001.0)
    side = forked.checked_out("side")
    await store.commit(KEY, Change(1, 2, 1001.0, side))
    await store.commit(KEY, Change(2, 3, 1002.0, nodes=states(2, 3, segment=1)))
    assert (await store.load(KEY)).tree == side.with_end(3, 1002.0)
    assert (await store.load(KEY)).tree.segments[0].end == 3


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_a_change_of_another_version_is_a_conflict_and_writes_nothing(store, version):
    await plant(store, KEY, states(0, 2))
    await store.commit(KEY, Change(1, 3, 1000.0, nodes=states(2, 3)))
    before = await store.load(KEY)
    change = Change(version, 9, 9.0, TREE.with_end(9, 9.0), [state(0, ts=5.0), state(3)], [Piece(0, 0, 2)])
    with pytest.raises(WriteConflict, match="Another writer changed conversation"):
        await store.commit(KEY, change)
    assert await store.load(KEY) == before
    assert await store.read(KEY, 0, 0, 9) == states(0, 2) + states(2, 3)


async def test_one_of_many_concurrent_writers_succeeds(store):
    async def write(index):
        nodes = [state(index, ts=float(index))]
        await store.commit(KEY, Change(0, index + 1, 1000.0, TREE, nodes))
        return nodes

    ended = await asyncio.gather(*map(write, range(20)), return_exceptions=True)
    (won,) = [each for each in ended if not isinstance(each, WriteConflict)]
    assert await store.read(KEY, 0, 0, 20) == won
    assert (await store.load(KEY)).version == 1


async def test_a_repeated_change_is_written_once(store):
    first = Change(0, 1, 1000.0, TREE, states(0, 1))
    await store.commit(KEY, first)
    await store.commit(KEY, first)
    assert (await store.load(KEY)).version == 1
    second = Change(1, 2, 1000.0, nodes=states(1, 2))
    await store.commit(KEY, second)
    await store.commit(KEY, second)
    with pytest.raises(WriteConflict):
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    assert await indices(store, KEY) == [0, 1]
    assert (await store.load(KEY)).version == 2


async def test_a_writer_with_a_token_below_the_fence_writes_nothing(store):
    await plant(store, KEY, states(0, 1))
    await store.fence(KEY, 5)
    await store.fence(KEY, 5)
    with pytest.raises(Fenced, match="Another owner has taken over conversation"):
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2), fence=4))
    with pytest.raises(Fenced):
        await store.fence(KEY, 4)
    assert await indices(store, KEY) == [0]
    await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2), fence=5))
    await store.commit(KEY, Change(2, 3, 1000.0, nodes=states(2, 3)))
    await store.fence(KEY, 1_795_289_712_296_355)
    with pytest.raises(Fenced):
        await store.commit(KEY, Change(3, 4, 1000.0, nodes=states(3, 4), fence=1_795_289_712_296_354))
    with pytest.raises(Fenced):
        await store.remove(KEY, 3, fence=1_795_289_712_296_354)
    assert await indices(store, KEY) == [0, 1, 2]
    await store.remove(KEY, 3, fence=1_795_289_712_296_355)
    assert await store.load(KEY) is None


async def test_a_fence_exists_before_and_after_its_log(store):
    await store.fence(KEY, 5)
    assert await store.load(KEY) is None
    assert await store.keys() == []
    with pytest.raises(Fenced):
        await store.commit(KEY, Change(0, 1, 1000.0, TREE, states(0, 1), fence=4))
    await plant(store, OTHER)
    await store.commit(KEY, Change(0, 1, 1000.0, TREE, states(0, 1), fence=6))
    await store.remove(KEY, 1)
    assert await store.keys() == [OTHER]
    with pytest.raises(Fenced):
        await store.commit(KEY, Change(0, 1, 1000.0, TREE, states(0, 1), fence=4))
    await plant(store, KEY, states(0, 1))
    assert await indices(store, KEY) == [0]


async def test_a_change_written_before_a_higher_fence_may_be_repeated(store):
    change = Change(0, 1, 1000.0, TREE, states(0, 1), fence=4)
    await store.commit(KEY, change)
    await store.fence(KEY, 5)
    await store.commit(KEY, change)
    assert (await store.load(KEY)).version == 1


async def test_a_read_returns_the_states_of_a_range_in_order(store):
    await plant(store, KEY, [*states(3, 7), *states(5, 8, segment=1)])
    await plant(store, OTHER, states(0, 9))
    assert await indices(store, KEY, 4, 6) == [4, 5]
    assert await indices(store, KEY, 0, 100) == [3, 4, 5, 6]
    assert await indices(store, KEY, 0, 100, segment=1) == [5, 6, 7]
    assert await indices(store, KEY, 0, 100, segment=2) == []
    assert await indices(store, KEY, 5, 5) == []
    assert await indices(store, KEY, 7, 3) == []


async def test_data_are_returned_byte_for_byte(store):
    texts = ["", "{}", "\n\x00\r\t", "grüße 🙂 \\ud800", '{"a": "\\n"}', "x" * 300_000]
    packed = [b"", b"\n\n", b"\x00", bytes(range(256)) * 3, b'"text"', b"\xff\xfe" * 200_000]
    nodes = [state(index, data=data) for index, data in enumerate([*texts, *packed])]
    await plant(store, KEY, nodes)
    found = await store.read(KEY, 0, 0, 100)
    assert [type(node.envelope["data"]) for node in found] == [str] * 6 + [bytes] * 6
    assert found == nodes
    assert [node.envelope["compressed"] for node in found] == [False] * 6 + [True] * 6


async def test_the_fields_beside_the_data_are_returned(store):
    calls = (OpenCall("call 1\n", "ref/0/1", "declared"), OpenCall("ü", "ref/0/2", "agent"))
    envelope = {"v": 2**40, "t": "Von mir 🙂", "ts": 1763740800.123456789, "data": "{}", "compressed": False}
    nodes = [
        Node(0, 0, envelope, 0, Flow("the beginning")),
        Node(0, 1, envelope, 7, Flow("Von mir 🙂", calls), ("ref/0/0", "other/1/1")),
        Node(0, 2, {**envelope, "ts": 5, "data": "eA==", "compressed": True}, 7, Flow("Another", calls[:1])),
        Node(0, 3, state(0).envelope, 1, Flow("Said", (OpenCall("\ud800", "ref", "tool"),)), ("\udfff",)),
    ]
    await plant(store, KEY, nodes)
    assert await store.read(KEY, 0, 0, 4) == nodes


async def test_a_cut_deletes_only_its_states(store):
    await plant(store, KEY, [*states(0, 10), *states(0, 10, segment=1), *states(0, 3, segment=11)])
    await plant(store, OTHER, states(0, 10))
    cuts = [Piece(0, 4, 7), Piece(1, 0, 10), Piece(0, 9, 30), Piece(5, 0, 3)]
    await store.commit(KEY, Change(1, 10, 1000.0, TREE, cuts=cuts))
    assert await indices(store, KEY) == [0, 1, 2, 3, 7, 8]
    assert await indices(store, KEY, segment=1) == []
    assert await indices(store, KEY, segment=11) == [0, 1, 2]
    assert await indices(store, OTHER) == list(range(10))


async def test_many_states_are_written_read_and_cut_at_once(store):
    await plant(store, KEY, states(0, 3_000))
    assert await indices(store, KEY, 0, 30_000) == list(range(3_000))
    await store.commit(KEY, Change(1, 10, 1000.0, TREE, cuts=[Piece(0, 10, 3_000)]))
    assert await indices(store, KEY, 0, 30_000) == list(range(10))


async def test_keys_lists_the_last_written_log_first(store):
    times = {"old": 10.0, "new": 30.0, "b": 20.0, "B": 20.0, "ä": 20.0}
    for name, when in times.items():
        await plant(store, Key(name, "alpha"), written=when)
    await plant(store, Key("B", "Alpha"), written=20.0)
    order = [("new", "alpha"), ("B", "Alpha"), ("B", "alpha"), ("b", "alpha"), ("ä", "alpha"), ("old", "alpha")]
    assert [(key.conversation_id, key.agent_id) for key in await store.keys()] == order
    await store.commit(Key("old", "alpha"), Change(1, 0, 40.0))
    assert (await store.keys())[0] == Key("old", "alpha")


@pytest.mark.parametrize("version", [0, 2])
async def test_a_log_of_another_version_is_not_removed(store, version):
    await plant(store, KEY, states(0, 2))
    with pytest.raises(WriteConflict):
        await store.remove(KEY, version)
    assert await indices(store, KEY) == [0, 1]


async def test_a_removed_log_may_start_again_without_its_old_states(store):
    await plant(store, KEY, states(0, 5))
    await plant(store, OTHER, states(0, 2))
    await store.remove(KEY, 1)
    assert await store.keys() == [OTHER]
    with pytest.raises(WriteConflict):
        await store.commit(KEY, Change(1, 6, 1000.0, nodes=states(5, 6)))
    await plant(store, KEY, [state(0, kind="New")])
    assert [node.envelope["t"] for node in await store.read(KEY, 0, 0, 10)] == ["New"]
    assert (await store.load(KEY)).version == 1


async def test_agents_are_stored_by_id(store):
    assert await store.agents() == {}
    await store.save_agent("b", '{"type": "llm"}')
    await store.save_agent("ä/ {}\x00", "{}")
    await store.save_agent("", "one without a name")
    await store.save_agent("b", '{"type": "llm", "id": "b", "text": "🙂"}')
    assert list((await store.agents()).items()) == [
        ("", "one without a name"),
        ("b", '{"type": "llm", "id": "b", "text": "🙂"}'),
        ("ä/ {}\x00", "{}"),
    ]
    await store.forget_agent("b")
    await store.forget_agent("nobody")
    assert list(await store.agents()) == ["", "ä/ {}\x00"]


async def test_half_a_surrogate_pair_in_an_id_or_an_agent_is_refused(store):
    for call in (
        lambda: store.save_agent("\ud800", "{}"),
        lambda: store.save_agent("a", '"\udfff"'),
        lambda: store.load(Key("c\ud800", "alpha")),
    ):
        with pytest.raises(ValueError, match="half of a character"):
            await call()
    assert await store.agents() == {}


async def test_ids_are_distinct_whatever_characters_they_have(store):
    ids = ["a", "A", "a/b", "b", "a%2Fb", "{a}", "a:b", "é", "e\u0301", "\x00", " ", "🙂", "*", "a\n"]
    keys = [Key(conversation_id, agent_id) for conversation_id in ids for agent_id in ids]
    for number, key in enumerate(keys):
        await plant(store, key, [state(0, ts=float(number))])
    assert set(await store.keys()) == set(keys)
    for number, key in enumerate(keys):
        (node,) = await store.read(key, 0, 0, 9)
        assert node.envelope["ts"] == number


async def test_a_log_is_kept_when_its_store_is_closed(lasting_url):
    store = await open_store(lasting_url)
    await plant(store, KEY, states(0, 3))
    await store.save_agent("a", "{}")
    await store.aclose()
    store = await open_store(lasting_url)
    assert await indices(store, KEY) == [0, 1, 2]
    assert await store.agents() == {"a": "{}"}
    await store.commit(KEY, Change(1, 4, 1000.0, nodes=states(3, 4)))
    await store.aclose()


async def test_two_open_stores_of_one_url_share_their_logs(lasting_url):
    one, two = await open_store(lasting_url), await open_store(lasting_url)
    await plant(one, KEY, states(0, 1))
    await two.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    with pytest.raises(WriteConflict):
        await one.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    assert await indices(one, KEY) == [0, 1]
    await two.remove(KEY, 2)
    await plant(two, KEY, [state(0, kind="New")])
    with pytest.raises(WriteConflict):
        await one.commit(KEY, Change(2, 3, 1000.0, nodes=states(2, 3)))
    await one.commit(KEY, Change(1, 2, 1000.0, nodes=[state(1, kind="New")]))
    assert [node.envelope["t"] for node in await two.read(KEY, 0, 0, 9)] == ["New", "New"]
    await one.aclose()
    await two.aclose()


async def test_close_waits_for_pending_writes(lasting_url):
    store = await open_store(lasting_url)
    writing = [asyncio.create_task(plant(store, Key(f"c{n}", "alpha"), states(0, 50))) for n in range(30)]
    await asyncio.sleep(0)
    await store.aclose()
    await asyncio.gather(*writing)
    store = await open_store(lasting_url)
    assert len(await store.keys()) == 30
    await store.aclose()


async def test_a_closed_store_raises_an_error(lasting_url):
    store = await open_store(lasting_url)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="has been closed"):
        await store.load(KEY)
    with pytest.raises(StoreError, match="has been closed"):
        await plant(store, KEY)


async def test_a_cancelled_write_is_done_or_not_when_the_next_call_returns(store):
    unseen = []
    asyncio.get_running_loop().set_exception_handler(lambda _, trouble: unseen.append(trouble))
    for number in range(40):
        key = Key(f"c{number}", "alpha")
        writing = asyncio.create_task(plant(store, key, states(0, 20)))
        for _ in range(number % 20):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        there = await store.load(key) is not None
        assert await indices(store, key) == (list(range(20)) if there else [])
        assert key in await store.keys() if there else key not in await store.keys()
        assert (await store.load(key) is not None) == there
    assert unseen == []
