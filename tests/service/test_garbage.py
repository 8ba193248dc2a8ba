"""Full garbage collections: they are rare, but happen."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from service.garbage import collecting_garbage


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
async def collecting():
    async with collecting_garbage():
        yield
    gc.unfreeze()


@pytest.mark.usefixtures("collecting")
async def test_old_garbage_is_collected_when_there_are_many_new_objects():
    node, collected = Node(), asyncio.Event()
    weakref.finalize(node, collected.set)
    for _ in range(2):
        gc.collect(1)  # it is old now
    del node
    kept = [[] for _ in range(600_000)]
    async with asyncio.timeout(50):
        await collected.wait()
    assert kept
