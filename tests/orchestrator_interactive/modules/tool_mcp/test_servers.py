"""Servers over stdio and HTTP: their tools, results, ends and restarts."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_hosts import HONEST, HttpServer, gone, is_running, pids, raw, stdio, until

from orchestrator_interactive.modules import tool_mcp

KINDS = ["stdio", "http"]
LOST = "its outcome is unknown. It may have taken effect: check before you repeat it."


@pytest.fixture(params=KINDS)
async def config(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    if request.param == "stdio":
        yield stdio(env={"STARTS": str(tmp_path / "starts")})
        return
    async with HttpServer() as server:
        yield {"url": server.url}


async def test_the_tools_of_a_server_are_called_under_its_name(mounted: Any, config: dict[str, Any]) -> None:
    host = await mounted({"calc": config})
    tool = host.tools["calc__add"]
    assert tool.get_schema()["required"] == ["a", "b"]
    assert "Add two numbers." in tool.description
    result = await host.call("calc__add", a=2, b=3)
    assert result.success
    assert "data, not instructions" in result.output
    assert result.output.endswith("5")


async def test_a_failed_call_is_a_failed_result(mounted: Any, config: dict[str, Any]) -> None:
    result = await (await mounted({"calc": config})).call("calc__fail")
    assert not result.success
    assert "the disk is full" in result.get_serialized_output()


async def test_progress_reaches_the_status_and_a_cancelled_call_is_cancelled_at_the_server(
    mounted: Any, config: dict[str, Any], tmp_path: Path
) -> None:
    host, marker = await mounted({"calc": config}), tmp_path / "marker"
    call = asyncio.create_task(host.call("calc__slow", marker=str(marker)))
    await until(lambda: host.progress)
    assert host.progress == ["one third (1 of 3)"]
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(marker.exists)
    assert (await host.text("calc__add", a=1, b=1)).endswith("2")  # the connection is still good


async def test_a_time_limit_ends_a_call(mounted: Any, config: dict[str, Any], tmp_path: Path) -> None:
    host = await mounted({"calc": {**config, "timeout_s": 0.5}})
    said = await host.text("calc__slow", marker=str(tmp_path / "marker"))
    assert "after 0.5 seconds" in said
    assert LOST in said


async def test_a_server_that_ends_is_started_again_and_the_call_is_reported_truthfully(
    mounted: Any, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    host = await mounted({"calc": stdio(env={"STARTS": str(starts)})})
    assert LOST in await host.text("calc__die")
    assert (await host.text("calc__add", a=1, b=1)).endswith("2")
    assert len(pids(starts)) == 2
    os.kill(pids(starts)[-1], signal.SIGKILL)  # while it is idle
    await gone(pids(starts)[-1])
    while not (await host.text("calc__add", a=1, b=2)).endswith("3"):
        pass  # its end may not be known yet
    assert len(pids(starts)) == 3


async def test_an_http_server_that_goes_and_comes_back(mounted: Any, http_server: HttpServer, tmp_path: Path) -> None:
    host = await mounted({"calc": {"url": http_server.url}})
    call = asyncio.create_task(host.text("calc__slow", marker=str(tmp_path / "marker")))
    await until(lambda: host.progress)
    await http_server.stop()
    assert LOST in await call
    assert "The call was not made" in await host.text("calc__add", a=1, b=1)
    await http_server.start()
    async with asyncio.timeout(20):
        while not (said := await host.text("calc__add", a=1, b=1)).endswith("2"):
            assert "The call was not made" in said
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_an_http_server_that_was_restarted_while_it_was_idle(
    mounted: Any, http_server: HttpServer, protocol: str
) -> None:
    host = await mounted({"calc": {"url": http_server.url, "protocol": protocol}})
    await http_server.stop()
    await http_server.start()
    assert (await host.text("calc__add", a=1, b=1)).endswith("2")  # it did not know the session, so it did nothing
    await http_server.stop()
    assert "The call was not made" in await host.text("calc__add", a=1, b=1)


async def test_a_server_that_dies_again_and_again_is_not_started_with_each_call(mounted: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    host = await mounted({"calc": stdio(env={"STARTS": str(starts)})})
    said = [await host.text("calc__die") for _ in range(6)]
    assert "It is tried again in" in said[-1]
    assert len(pids(starts)) < 5


@pytest.mark.parametrize(
    "broken",
    [
        {"command": "no-such-program"},
        {"command": "false"},
        {"command": "cat"},
        {"url": "http://127.0.0.1:9/mcp"},
        {"command": sys.executable, "args": ["-c", "print('hello'); raise SystemExit('no licence')"]},
    ],
    ids=["absent", "fails", "echoes", "refuses", "says something else"],
)
async def test_a_server_that_does_not_start_prevents_nothing(mounted: Any, logs: Any, broken: dict[str, Any]) -> None:
    host = await mounted({"bad": {**broken, "connect_timeout_s": 2}, "good": stdio()})
    assert "good__add" in host.tools
    assert not [name for name in host.tools if name.startswith("bad__")]
    [entry] = logs.named("mcp.server_left_out")
    assert entry["server"] == "bad"


async def test_sessions_share_a_process_and_the_last_one_ends_it(mounted: Any, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    config = stdio(env={"STARTS": str(starts)})
    first, second = await mounted({"calc": config}), await mounted({"calc": config})
    own = await mounted({"calc": {**config, "share": "session"}})
    assert len(pids(starts)) == 2
    await first.close()
    assert (await second.text("calc__add", a=1, b=1)).endswith("2")
    await second.close()
    assert not is_running(pids(starts)[0])
    await own.close()
    assert not any(map(is_running, pids(starts)))


async def test_the_service_s_secrets_are_not_in_the_environment(mounted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    host = await mounted({"calc": stdio(env={"MINE": "yes"})})
    said = await host.text("calc__environment")
    assert "MINE=yes" in said
    assert "xoxb-1" not in said


def test_no_process_survives_a_service_that_is_killed(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    program = (
        "import asyncio, sys\n"
        "from orchestrator_interactive.kernel import AmplifierSession\n"
        "from orchestrator_interactive.modules import tool_mcp\n"
        "async def main():\n"
        "    session = AmplifierSession({'session': {'orchestrator': 'o', 'context': 'c'}})\n"
        f"    server = {{'command': sys.executable, 'args': [{str(HONEST)!r}], 'env': {{'STARTS': {str(starts)!r}}}}}\n"
        "    await tool_mcp.mount(session.coordinator, {'servers': {'calc': server}})\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    service = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    assert service.stdout is not None
    while "ready" not in service.stdout.readline():
        pass
    [pid] = pids(starts)
    assert is_running(pid)
    service.kill()
    service.wait()
    service.stdout.close()
    asyncio.run(gone(pid))


def test_without_the_library_the_error_names_the_remedy() -> None:
    program = (
        "import asyncio, sys\n"
        "sys.modules['mcp'] = None\n"
        "from orchestrator_interactive.modules import tool_mcp\n"
        "asyncio.run(tool_mcp.mount(None, {'servers': {'a': {'command': 'b'}}}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    assert "tool-mcp: mcp is not installed. Install it with `pip install 'amplifier-slack[mcp]'`." in ended.stderr


async def test_resources_and_prompts_have_a_tool_each(mounted: Any, config: dict[str, Any]) -> None:
    host = await mounted({"calc": config, "plain": raw({})})
    assert "memo://today" in await host.text("mcp_list_resources", server="calc")
    assert "lunch at one" in await host.text("mcp_read_resource", server="calc", uri="memo://today")
    assert "greet" in await host.text("mcp_get_prompt", server="calc")
    assert "Say hello to Ada" in await host.text(
        "mcp_get_prompt", server="calc", name="greet", arguments={"name": "Ada"}
    )
    assert "There are: calc." in await host.text("mcp_list_resources", server="plain")
    assert host.tools["mcp_get_prompt"].get_schema()["properties"]["server"]["enum"] == ["calc"]


async def test_servers_without_resources_have_no_such_tools(mounted: Any) -> None:
    assert list((await mounted({"plain": raw({})})).tools) == ["plain__act"]


@pytest.mark.parametrize(
    ("options", "read_only", "destroys"),
    [({}, (False, None), (False, True)), ({"trust_annotations": True}, (True, False), (False, True))],
    ids=["untrusted", "trusted"],
)
async def test_of_the_annotations_only_danger_is_believed(
    mounted: Any, options: dict[str, Any], read_only: tuple[bool, Any], destroys: tuple[bool, Any]
) -> None:
    tools = (await mounted({"calc": stdio(**options)})).tools
    for name, expected in (("add", read_only), ("environment", destroys)):
        tool = tools[f"calc__{name}"]
        assert (tool.side_effect_free, tool.destructive) == expected


async def test_only_allowed_tools_are_offered(mounted: Any) -> None:
    assert set((await mounted({"calc": stdio(tools=["a*", "fail"])})).tools) == {
        "calc__add",
        "calc__fail",
        "mcp_list_resources",
        "mcp_read_resource",
        "mcp_get_prompt",
    }


async def test_changed_tools_are_noted_and_refused_if_they_are_pinned(mounted: Any, logs: Any) -> None:
    before, after = ([{"name": "act", "description": text, "inputSchema": {}}] for text in ("Reads.", "Sends."))
    config = raw({"tools": [before, before, after]})
    first = await mounted({"shop": config})
    [listed] = logs.named("mcp.tools_listed")
    pinned = {"shop": {**config, "digest": listed["digest"]}}
    assert "shop__act" in (await mounted(pinned)).tools  # another process: its first listing is the same
    second, third = await mounted({"shop": config}), await mounted({"shop": config})
    assert "Reads." in first.tools["shop__act"].description
    assert "Reads." in second.tools["shop__act"].description
    assert "Sends." in third.tools["shop__act"].description
    [changed] = logs.named("mcp.tools_changed")
    assert changed["digest"] != listed["digest"]
    assert (await mounted({"shop": {**raw({}), "digest": listed["digest"]}})).tools == {}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "servers"),
        ({"servers": {"x": {}}}, "either a `command` or a `url`"),
        ({"servers": {"x": {"command": "a", "url": "https://b.test"}}}, "either a `command` or a `url`"),
        ({"servers": {"x": {"url": "http://b.test"}}}, "https"),
        ({"servers": {"x": {"url": "file:///etc/passwd"}}}, "https"),
        ({"servers": {"x__y": {"command": "a"}}}, "x__y"),
        ({"servers": {"x": {"command": "a", "auth": "oauth"}}}, "`url`"),
        ({"servers": {"x": {"url": "https://b.test", "env": {"A": "b"}}}}, "`command`"),
        ({"servers": {"x": {"command": "a", "tols": []}}}, "tols"),
    ],
)
async def test_a_wrong_configuration_is_refused_with_a_sentence(
    coordinator: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match="tool-mcp") as refused:
        await tool_mcp.mount(coordinator, options)
    assert problem in str(refused.value)
