"""`python -m local_slack` as a user runs it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress

import pytest
from endpoint import endpoint


@pytest.fixture
async def start():
    running = []

    async def start(*arguments):
        command = (sys.executable, "-m", "local_slack", *arguments)
        running.append(await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE))
        return running[-1]

    yield start
    for process in running:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def url_of(process):
    async with asyncio.timeout(10):
        while line := await process.stdout.readline():
            if match := re.search(rb"http://127\.0\.0\.1:\d+/", line):
                return match[0].decode()
    raise AssertionError("no address was printed")


async def ended(process):
    async with asyncio.timeout(10):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_prints_its_address_and_ends_without_output(start, session, number):
    process = await start("--port", "0", "--people", "dora", "--bot", "omega", "--apps", "alerts")
    url = await url_of(process)
    async with session.get(url + "page/state.json") as response:
        state = await response.json()
    assert [person["name"] for person in state["people"]] == ["dora"]
    process.send_signal(number)
    code, out, err = await ended(process)
    assert (code, err) == (0, "")
    assert f"SLACK_API_URL={url}api/" in out
    assert "SLACK_BOT_TOKEN=xoxb-local-omega" in out
    assert "The bot token of alerts in Playground: xoxb-local-alerts\n" in out
    assert out.endswith(" SLACK_BOT_TOKEN=xoxb-local-omega amplifier-slack run\n")


async def test_a_command_gets_the_variables_and_its_exit_code_is_returned(start):
    names = ("SLACK_API_URL", "SLACK_APP_TOKEN", "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET")
    script = f'echo "child {" ".join(f"${name}" for name in names)}"; exit 7'
    code, out, _ = await ended(await start("--port", "0", "--", "sh", "-c", script))
    assert code == 7
    secrets = "xapp-1-A0ALPHA-local-alpha xoxb-local-alpha local-signing-secret"
    assert re.search(rf"child http://127\.0\.0\.1:\d+/api/ {secrets}", out)


async def test_a_signal_ends_the_command(start):
    script = "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit('terminated'))\nprint('up', flush=True)\n"
    # One long sleep would not see a signal that comes just before it begins.
    script += "while True: time.sleep(0.05)"
    process = await start("--port", "0", "--", sys.executable, "-c", script)
    while (await process.stdout.readline()).strip() != b"up":
        pass
    process.send_signal(signal.SIGTERM)
    code, _, err = await ended(process)
    assert code == 0
    assert "terminated" in err
    assert "Traceback" not in err


async def test_a_killed_command_begins_anew(start, session):
    script = (
        "import os, signal, time\nprint('up', os.getpid(), os.environ['SLACK_API_URL'], flush=True)\nsignal.pause()"
    )
    process = await start("--port", "0", "--", sys.executable, "-c", script)
    pids = []
    for _ in range(3):
        while (line := (await process.stdout.readline()).split())[:1] != [b"up"]:
            pass
        pids.append(line[1])
        url = line[2].decode().removesuffix("api/")
        async with session.post(url + "faults", json={"app": "kill"}) as response:
            assert (await response.json())["can_kill"]
    assert len(set(pids)) == 3
    process.send_signal(signal.SIGTERM)
    assert (await ended(process))[0] == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"steps": []}, "it has no list of steps"),
        ({"end": 5}, "it has no text `end`"),
        ({"until": {}}, "step 1: `until` needs one of status, reaction, words"),
        ({"until": {"words": "a", "status": "active"}}, "step 1: `until` needs one of"),
        ({"until": {"words": ""}}, "step 1: `until` waits for nothing"),
        ({"until": {"status": "asleep"}}, "step 1: `status` must be one of processing, suspended, active, closed"),
        ({"do": "restart"}, "step 1: `do` must be one of stop, kill"),
        ({"say": 5}, "step 1: `say` is not a text"),
        ({"channel": None}, "step 1: the first one needs `say` and `channel`"),
        ({"help": "x"}, "step 1: unknown field `help`"),
        ({"text": None}, "step 1: it needs `title`, `text` and `until`"),
    ],
)
async def test_a_tour_that_cannot_be_used_is_an_error_that_names_the_step(start, tmp_path, change, problem):
    step = {"title": "Ask", "text": "Ask.", "channel": "general", "say": "hi", "until": {"words": "hello"}}
    step |= {key: value for key, value in change.items() if key not in ("steps", "end")}
    tour = {
        "title": "Tour",
        "text": "A tour.",
        "end": "The end.",
        "steps": [{k: v for k, v in step.items() if v is not None}],
    }
    file = tmp_path / "tour.json"
    file.write_text(json.dumps(tour | {key: value for key, value in change.items() if key in ("steps", "end")}))
    code, _, err = await ended(await start("--port", "0", "--tour", str(file)))
    assert code == 1
    assert f"Error: the tour {file} cannot be used: {problem}" in err


async def test_a_command_that_cannot_start_is_an_error(start):
    code, _, err = await ended(await start("--port", "0", "--", "no-such-command"))
    assert code == 127
    assert err == "Error: cannot start 'no-such-command': No such file or directory\n"


async def test_a_port_in_use_is_an_error_of_one_line(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = await ended(await start("--port", str(port)))
    assert (code, out) == (1, "")
    assert err == f"Error: port {port} on 127.0.0.1 is already in use; choose another one with --port\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "70000"),
        (("--host", "0.0.0.0"), "0.0.0.0"),  # noqa: S104 - must be refused
        (("--people", "Ana Lee"), "Ana Lee"),
        (("--people", "ana:boss"), "ana:boss"),
        (("--command", "agent"), "'agent'"),
        (("--shortcut", "ask"), "ID:message:NAME"),
        (("--shortcut", "ask:channel:Ask"), "'ask:channel:Ask'"),
    ],
)
async def test_wrong_usage_exits_with_code_2(start, arguments, message):
    code, _, err = await ended(await start(*arguments))
    assert code == 2
    assert message in err
    assert "Traceback" not in err


async def test_the_record_is_written_to_a_file(start, session, tmp_path):
    file = tmp_path / "record.jsonl"
    url = await url_of(await start("--port", "0", "--record", str(file)))
    headers = {"Authorization": "Bearer xoxb-local-alpha"}
    async with session.post(url + "api/auth.test", headers=headers) as response:
        assert response.status == 200
    (entry,) = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert (entry["what"], entry["method"], entry["ok"]) == ("call", "auth.test", True)


async def test_a_record_that_cannot_be_written_is_an_error_of_one_line(start, tmp_path):
    code, _, err = await ended(await start("--port", "0", "--record", str(tmp_path / "no" / "where")))
    assert code == 1
    assert err == f"Error: cannot write to {tmp_path / 'no' / 'where'}: No such file or directory\n"


async def test_events_of_all_workspaces_go_to_the_request_url(start, session):
    async with endpoint() as app:
        arguments = ("--deliver-to", app.url, "--teams", "Playground,Second", "--no-limits")
        process = await start("--port", "0", *arguments)
        url = await url_of(process)
        headers = {"Authorization": "Bearer xoxp-second-ana"}
        for number in range(2):
            body = {"channel": "C1GENERAL", "text": str(number)}
            async with session.post(url + "api/chat.postMessage", json=body, headers=headers) as response:
                assert (await response.json())["ok"]
        requests = await app.received(2)
        assert {request.json["team_id"] for request in requests} == {"T1SECOND"}
        async with session.get(url + "limits") as response:
            assert await response.json() == []
        process.terminate()
        _, out, _ = await ended(process)
        assert "Its bot token in Second: xoxb-second-alpha" in out


async def test_an_invalid_request_url_is_an_error(start):
    code, _, err = await ended(await start("--port", "0", "--deliver-to", "localhost:3000"))
    assert code == 1
    assert err.startswith("Error: 'localhost:3000' is not a request URL; use one such as http://127.0.0.1:3000/")


async def test_commands_and_shortcuts_are_offered_on_the_page(start, session):
    arguments = ("--command", "/agent", "--command", "/deploy", "--shortcut", "ask:message:Ask: this")
    url = await url_of(await start("--port", "0", *arguments))
    async with session.get(url + "page/state.json") as response:
        state = await response.json()
    assert state["commands"] == ["/agent", "/deploy"]
    assert state["shortcuts"] == [{"callback_id": "ask", "name": "Ask: this", "type": "message"}]


SCENE = [
    {"by": "ana", "channel": "general", "text": "@alpha is it red?", "thread": [{"by": "ben", "text": "since friday"}]},
    {"by": "alerts", "channel": "random", "attachments": [{"title": "Disk full"}]},
]


async def test_it_begins_with_the_messages_of_a_scene(start, session, tmp_path):
    scene = tmp_path / "scene.json"
    scene.write_text(json.dumps(SCENE))
    url = await url_of(await start("--port", "0", "--apps", "alerts", "--scene", str(scene)))
    said = {}
    for channel in ("C0GENERAL", "C0RANDOM"):
        asked = {"channel": channel, "token": "xoxp-local-ana"}
        async with session.post(f"{url}api/conversations.history", data=asked) as response:
            (said[channel],) = (await response.json())["messages"]
    assert (said["C0GENERAL"]["user"], said["C0GENERAL"]["text"]) == ("U0ANA", "<@U0ALPHA> is it red?")
    assert said["C0GENERAL"]["reply_users"] == ["U0BEN"]
    assert (said["C0RANDOM"]["user"], said["C0RANDOM"]["attachments"][0]["title"]) == ("U0ALERTS", "Disk full")


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        ("[", "cannot read the scene"),
        ("{}", "is not a JSON list of messages"),
        ('[{"by": "eve", "channel": "general"}]', "no member is called 'eve'"),
        ('[{"by": "ana", "channel": "none", "text": "hi"}]', "channel_not_found"),
        ("[7]", "A message has `by`, `channel`, and `text`"),
    ],
)
async def test_a_scene_that_cannot_be_posted_is_an_error_of_one_line(start, tmp_path, scene, reason):
    path = tmp_path / "scene.json"
    path.write_text(scene)
    code, _, err = await ended(await start("--port", "0", "--scene", str(path)))
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("Error: ")
    assert reason in err
