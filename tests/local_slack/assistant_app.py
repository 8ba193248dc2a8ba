"""An assistant as Slack's samples write it: `App(token=…)` without an address, synchronous or asynchronous."""

from __future__ import annotations

import asyncio
import os
import sys

from slack_bolt import App, Assistant
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp, AsyncAssistant

TOKENS = {"token": os.environ["SLACK_BOT_TOKEN"]}
PROMPTS = ["What can you do?"]


def run():
    app, assistant = App(**TOKENS), Assistant()

    @assistant.thread_started
    def start(say, set_suggested_prompts):
        say("Hello.")
        set_suggested_prompts(prompts=PROMPTS)

    @assistant.user_message
    def answer(payload, set_status, set_title, say, get_thread_context):
        set_title(payload["text"])
        set_status("Thinking...")
        context = get_thread_context()
        say(f"You come from <#{context.channel_id}>." if context else "I do not know where you come from.")

    app.use(assistant)
    SocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start()


async def run_async():
    app, assistant = AsyncApp(**TOKENS), AsyncAssistant()

    @assistant.thread_started
    async def start(say, set_suggested_prompts):
        await say("Hello.")
        await set_suggested_prompts(prompts=PROMPTS)

    @assistant.user_message
    async def answer(payload, set_status, set_title, say, get_thread_context):
        await set_title(payload["text"])
        await set_status("Thinking...")
        context = await get_thread_context()
        await say(f"You come from <#{context.channel_id}>." if context else "I do not know where you come from.")

    app.use(assistant)
    await AsyncSocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start_async()


if __name__ == "__main__":
    asyncio.run(run_async()) if sys.argv[1:] == ["async"] else run()
