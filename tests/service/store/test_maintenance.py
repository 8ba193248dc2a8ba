from __future__ import annotations

import asyncio

import aiohttp
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.storage.errors import StoreUnavailable
from service.store.maintenance import expiring, watching_disks


async def test_free_space_is_logged_at_the_start_and_when_it_crosses_the_reserve(tmp_path):
    disk, lines = tmp_path / "disk", asyncio.Queue()
    disk.symlink_to(tmp_path)

    def record(_logger, _method, line):
        lines.put_nowait(line)
        return line

    with capture_logs(processors=[record]) as logged:
        async with asyncio.timeout(50), watching_disks({"store": disk}, 1, {}, every_s=0.005):
            assert (await lines.get())["store_free_mb"] > 1
            disk.unlink()
            disk.symlink_to("/proc")  # which has no free space
            low = await lines.get()
            assert (low["event"], low["place"], low["path"], low["free_mb"]) == ("disk.low", "store", str(disk), 0)
            await asyncio.sleep(0.05)
            disk.unlink()
            disk.symlink_to(tmp_path)
            assert (await lines.get())["event"] == "disk.recovered"
    assert [line["event"] for line in logged] == ["disk.space", "disk.low", "disk.recovered"]


async def test_the_health_endpoint_reports_the_free_space(slack, environment, config_file, free_port):
    config = config_file(
        "instances: {a: {persona: {name: A, emoji: ':owl:'}}}\nworkspace: {root: files}\n"
        f"slack: {{transport: http, listen: '127.0.0.1:{free_port}'}}\n"
    )
    async with environment.serving("--config", str(config), SLACK_SIGNING_SECRET=slack.signing_secret) as service:
        await service.says("service.ready")
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{free_port}/healthz") as response:
            assert response.status == 200
            first, *lines = (await response.text()).splitlines()
    assert (first, sorted(line.split()[0] for line in lines)) == ("ok", ["store_free_mb", "workspaces_free_mb"])
    assert all(int(line.split()[1]) > 0 for line in lines)


class Store:
    def __init__(self, problem=None):
        self.tidied = 0
        self._problem = problem

    async def delete_expired(self):
        self.tidied += 1
        if self._problem is not None:
            raise self._problem


@in_virtual_time
async def test_each_store_is_tidied_about_hourly_even_if_another_one_fails():
    away, faulty, there = Store(StoreUnavailable("It is away.")), Store(KeyError("days")), Store()
    with capture_logs() as lines:
        async with expiring(away, faulty, there):
            await asyncio.sleep(10 * 3600)
    assert 6 <= there.tidied == away.tidied == faulty.tidied <= 20
    failures = [line for line in lines if line["event"] == "store.expiry_failed"]
    assert {line.get("problem") or repr(line["exc_info"]) for line in failures} == {"It is away.", "KeyError('days')"}
    await asyncio.sleep(10 * 3600)
    assert there.tidied <= 20
