"""The service beside a Redis: what it calls is counted there, for the other replicas to see."""

from __future__ import annotations

from redis_server import redis_server


async def test_calls_of_a_service_over_redis_are_counted_there(slack, stage):
    with redis_server() as server:
        async with stage.serving(AMPLIFIER_SLACK_STORE=server.url) as service:
            await service.says("service.ready")
            asked = await slack.as_person("ana").say("general", "@alpha hello")
            await slack.until(lambda _: stage.said(asked), 20)
            counted = {key.decode() for key in server.ask("KEYS", "budget:*")}
    channel = slack.channel("general").id
    assert {f"budget:{{{slack.team_id}}}:chat.postMessage{end}" for end in ("", f":{channel}")} <= counted
