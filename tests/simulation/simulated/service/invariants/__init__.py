"""What must hold at the end of every story."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from simulated.service.slack import BOT

from . import deliveries, ownership, replies, runs, stops, thread
from .evidence import Evidence, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated.scenario import Scenario
    from simulated.service.agent import Cast
    from simulated.service.environment import Ground
    from simulated.service.people import Crowd, Written
    from simulated.service.store_observer import RunSeen

# What holds a process or its marks up: where it may happen, a mark can be missing, and a stop takes its time.
HOLDS_UP = frozenset(
    {"kills", "pauses", "terms", "outages", "failing Slack", "flaky store", "slow store", "slow Slack", "little room"}
) | {"Slack away", "no look-ups"}
# Where these are, the name of somebody cannot always be had.
UNNAMED = frozenset({"failing Slack", "Slack away", "slow Slack", "little room"})
# With one of each, an ❌ may be lost: its process asks Slack for the thread and ends before the answer.
_UNSAID = frozenset({"failing Slack", "Slack away", "slow Slack", "little room", "no look-ups"})
_ENDINGS = frozenset({"kills", "terms", "pauses"})
_HEEDED_WITHIN_S = (3.0, 60.0)

__all__ = ["HOLDS_UP", "judge"]


async def judge(scene: Scenario, ground: Ground, crowd: Crowd) -> None:
    """Blame what is not as it must be."""
    conversations = dict.fromkeys(written.conversation for written in crowd.written)
    for conversation_id in conversations:
        case = await _evidence(conversation_id, ground, crowd)
        if case is not None:
            for sentence in _of_conversation(case, scene, ground):
                scene.blame(sentence)
        elif any(_was_to_be_read(written) for written in crowd.written if written.conversation == conversation_id):
            scene.blame(f"All of {conversation_id} is lost.")
    for sentence in _of_all(ground.cast, ground):
        scene.blame(sentence)


def _of_conversation(case: Evidence, scene: Scenario, ground: Ground) -> Iterator[str]:
    seen = [run for run in ground.witness.runs.values() if run.conversation == case.id]
    is_held_up = not HOLDS_UP.isdisjoint(scene.features)
    yield from deliveries.conservation(case)
    is_kept = _UNSAID.isdisjoint(scene.features) or _ENDINGS.isdisjoint(scene.features)
    yield from deliveries.kept(case, are_reactions_kept=is_kept)
    yield from deliveries.order(case)
    yield from deliveries.latest(case)
    yield from thread.remains(case, [written.message for written in case.written])
    if case.is_there:
        yield from _of_thread(case, scene, ground, seen)
    if not is_held_up:
        yield from thread.marks(case)
    yield from stops.meant(case, seen)
    yield from stops.kept(case, seen)
    yield from stops.heeded(seen, _HEEDED_WITHIN_S[is_held_up])


def _of_thread(case: Evidence, scene: Scenario, ground: Ground, seen: list[RunSeen]) -> Iterator[str]:
    """What people read."""
    told = runs.stories(case, seen)
    yield from thread.texts(case)
    yield from thread.keys(case)
    yield from thread.looked_up(case)
    yield from ownership.posts(case)
    yield from runs.endings(told)
    yield from runs.sentences(case, told, are_named=UNNAMED.isdisjoint(scene.features))
    yield from runs.summaries(case, told)
    yield from runs.unknown(case)
    yield from replies.held(case)
    yield from replies.idle_stops(case, ground.witness.idle_stops)
    yield from replies.beginnings(case)
    yield from replies.refusals(case)


def _of_all(cast: Cast, ground: Ground) -> Iterator[str]:
    yield from thread.strays(ground.slack.strays())
    yield from ownership.fencing(ground.witness.commits)
    yield from ownership.repeated(cast.uses)


def _was_to_be_read(written: Written) -> bool:
    return written.is_acked and (written.is_mention or not written.begun_without_us)


async def _evidence(conversation_id: str, ground: Ground, crowd: Crowd) -> Evidence | None:
    known = (await ground.stores.known()).get(conversation_id)
    if known is None:
        return None
    root = conversation_id.rpartition(":")[2]
    begun: dict[str, list[str]] = defaultdict(list)
    for run in ground.witness.runs.values():
        begun[run.first].append(run.id)
    agents = [key.agent_id for key in await ground.stores.logs.keys() if key.conversation_id == conversation_id]
    claims_s: dict[int, list[float]] = defaultdict(list)
    for (claimed, process), times_s in ground.witness.claims_s.items():
        claims_s[process] += times_s if claimed == conversation_id else []
    return Evidence(
        id=conversation_id,
        known=known,
        rows={agent: await rows_of(ground.stores.logs, conversation_id, agent) for agent in agents},
        written=[written for written in crowd.written if written.conversation == conversation_id],
        accepted_s=ground.witness.admitted_s,
        reactions=[each for each in crowd.reactions if each.message.thread_ts == root],
        posts=[post for post in ground.slack.thread(root) if post.user == BOT],
        is_there=ground.slack.is_there(root),
        ever=[post for post in ground.slack.messages.values() if post.user == BOT and post.thread_ts == root],
        begun=begun,
        claims_s=claims_s,
        used={use.call for use in ground.cast.uses if use.conversation == conversation_id},
    )
