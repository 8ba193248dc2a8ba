"""A trigger of a whole service: from the request to the answer in the thread, over a kill."""

from __future__ import annotations

import json
import signal
import time

import aiohttp
import pytest
from model_scripts import Scripts

from connector.inbound.http_server import signature_of

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    instructions: You lead.
workspace: {{root: files}}
store: "{store}"
lease_s: 2
triggers:
  listen: 127.0.0.1:{port}
  endpoints:
    ci: {{secret: "${{CI_SECRET}}", channel: C0GENERAL, instructions: Find the cause., text: "{{{{ branch }}}} is red"}}
"""
SECRET = "a secret of 16 or more"


@pytest.fixture
def serve(environment, model_env, config_file, url, free_port):
    path = str(config_file(FILE.format(store=url, port=free_port)))
    return lambda: environment.serving("--config", path, CI_SECRET=SECRET, **model_env)


@pytest.fixture
def send(free_port):
    async def send(body, key):
        raw, at = json.dumps(body).encode(), str(int(time.time()))
        headers = {"X-Trigger-Timestamp": at, "X-Trigger-Signature": signature_of(SECRET, at, raw)}
        headers |= {"Idempotency-Key": key, "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{free_port}/triggers/ci"
        async with aiohttp.ClientSession() as http, http.post(url, data=raw, headers=headers) as response:
            return response.status

    return send


async def test_an_accepted_request_survives_a_kill_and_is_answered_once(serve, send, slack, environment, model):
    scripts, channel = Scripts(model), slack.channel("general").id
    async with serve() as service:
        await service.says("service.ready")
        assert await send({"branch": "main"}, "build 17") == 202
        await service.ended(signal.SIGKILL)
        assert SECRET not in service.output
    async with serve() as service:
        await service.says("service.ready")
        assert await send({"branch": "main"}, "build 17") == 200
        root = await slack.until(
            lambda ws: next((each.ts for each in ws.messages(channel) if each.text == "🔔 ci: main is red"), None)
        )
        await slack.until(lambda _: environment.said(root)[-1:] == ["fine"])
        (body,) = scripts.asked("lead")
        said = json.dumps(body["messages"], ensure_ascii=False)
        assert "ci · app" in said
        assert "Find the cause." in said
        assert "> main is red" in said
        assert sum("main is red" in each.text for each in slack.workspace.messages(channel)) == 1
        assert await send({"branch": "main", "conversation": f"{slack.team_id}:{channel}:{root}"}, "build 18") == 202
        await slack.until(lambda _: environment.found(root, "📝 ci: "))
        assert await service.ended(signal.SIGTERM) == 0
