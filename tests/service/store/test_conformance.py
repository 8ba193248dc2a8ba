"""The contract of run stores, for SQLite, Redis and a Redis cluster."""

from __future__ import annotations

import pytest
from run_store_cases import CASES, C, entry
from run_store_model import RunStoreMachine, assert_behaves_as_the_model

from orchestrator_interactive.storage.errors import StoreError
from service.store import inspect_run_store, open_run_store


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_of_each_store(store, case):
    await case(store)


async def test_a_closed_store_refuses_every_step(store):
    await store.aclose()
    await store.aclose()
    for step in (store.admit(C, entry(1), None), store.record(C)):
        with pytest.raises(StoreError, match="has been closed"):
            await step


@pytest.mark.parametrize("url", ["memory:", "memory", "sqlite", "postgres://me:hunter2@host/db", ""])
@pytest.mark.parametrize("open_store", [open_run_store, inspect_run_store])
async def test_the_url_of_no_persistent_store_is_refused_without_its_password(open_store, url):
    with pytest.raises(StoreError, match=r"`sqlite:PATH`, `redis://HOST:PORT/DB` or") as refused:
        await open_store(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 100), ("redis", 50), ("cluster", 12)])
def test_a_store_behaves_as_the_model(kind, examples, request):
    class Machine(RunStoreMachine):
        url = request.getfixturevalue(f"{kind}_url")

    assert_behaves_as_the_model(Machine, examples)
