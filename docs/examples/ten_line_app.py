import os

from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_sdk import WebClient

app = App(client=WebClient(os.environ["SLACK_BOT_TOKEN"], os.environ["SLACK_API_URL"]))


@app.event("app_mention")
def greet(event, say):
    say(f"Hello <@{event['user']}>!", thread_ts=event["ts"])


if __name__ == "__main__":
    SocketModeHandler(app, os.environ["SLACK_APP_TOKEN"]).start()
