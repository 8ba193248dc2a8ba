"""An agent as many begin: each message of a thread is a request of its own, and nothing is remembered.

With ``HABIT=repeat`` a request has all messages so far, but not the answers. With ``HABIT=shout`` an answer is also
posted to the channel.
"""

from __future__ import annotations

import os

from anthropic import Anthropic
from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_sdk import WebClient

app = App(client=WebClient(os.environ["SLACK_BOT_TOKEN"], os.environ["SLACK_API_URL"]))
model = Anthropic(max_retries=0)
habit = os.environ.get("HABIT")
heard = []


@app.event("message")
def answer(event, say):
    if event.get("subtype") is None and "bot_id" not in event:
        heard.append(event["text"])
        asked = [{"role": "user", "content": "\n".join(heard if habit == "repeat" else heard[-1:])}]
        said = model.messages.create(model="any", max_tokens=100, messages=asked).content[0].text
        say(said, thread_ts=event.get("thread_ts") or event["ts"])
        if habit == "shout":
            say(said)


@app.event("app_mention")
def ignore():
    """The same message comes as an event `message`, too."""


if __name__ == "__main__":
    SocketModeHandler(app, os.environ["SLACK_APP_TOKEN"], ping_interval=1).start()
