"""Reads what a service shows of itself over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

_WITHIN_S = 60.0


async def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Return the samples of `/metrics` by name and the values of their labels."""
    _, body = await _got(port, "/metrics")
    return {
        (sample.name.removeprefix("amplifier_slack_"), *(sample.labels[name] for name in sorted(sample.labels))): (
            sample.value
        )
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    }


async def counted(port: int, *sample: str) -> dict[tuple[str, ...], float]:
    """Wait until `/metrics` has this sample, and return all of them."""
    async with asyncio.timeout(_WITHIN_S):
        while sample not in (samples := await scraped(port)):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
    return samples


async def health(port: int, path: str = "/readyz") -> tuple[int, Any]:
    """Return the status of a health page, and the checks that fail, with their sentences."""
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as response:
        checks = (await response.json())["checks"]
        return response.status, {name: check["says"] for name, check in checks.items() if not check["ok"]}


async def becomes(port: int, status: int, failing: str = "") -> str:
    """Wait until `/readyz` has this status, with this failing check if one is named; return its sentence."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            found, checks = await health(port)
            if found == status and (not failing or failing in checks):
                return checks.get(failing, "")
            await asyncio.sleep(0.05)


async def _got(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()
