"""Pins, bookmarks, user groups, emoji and the workspace."""

from __future__ import annotations

from slack_errors import error_of

HERE = {"channel_id": "C0GENERAL"}


async def test_pins_are_listed_with_their_messages_the_last_pin_first(slack, ana, client):
    one, two = [await ana.say("general", text) for text in ("one", "two")]
    for ts in (one, two):
        await client.pins_add(channel="C0GENERAL", timestamp=ts)
    items = (await client.pins_list(channel="C0GENERAL"))["items"]
    assert [(item["message"]["text"], item["created_by"]) for item in items] == [("two", "U0ALPHA"), ("one", "U0ALPHA")]
    assert await error_of(client.pins_add(channel="C0GENERAL", timestamp=one)) == "already_pinned"
    await client.pins_remove(channel="C0GENERAL", timestamp=two)
    assert await error_of(client.pins_remove(channel="C0GENERAL", timestamp=two)) == "no_pin"
    await ana.delete("general", one)
    assert (await client.pins_list(channel="C0GENERAL"))["items"] == []
    assert await error_of(client.pins_add(channel="C0GENERAL", timestamp="1.0")) == "message_not_found"


async def test_bookmarks_are_added_edited_and_removed(client):
    added = (await client.bookmarks_add(**HERE, title="Plan", type="link", link="https://example.org"))["bookmark"]
    edited = (await client.bookmarks_edit(**HERE, bookmark_id=added["id"], title="The plan"))["bookmark"]
    assert (edited["title"], edited["link"]) == ("The plan", "https://example.org")
    assert (await client.bookmarks_list(**HERE))["bookmarks"] == [edited]
    assert await error_of(client.bookmarks_remove(channel_id="C0RANDOM", bookmark_id=added["id"])) == "not_found"
    await client.bookmarks_remove(**HERE, bookmark_id=added["id"])
    assert (await client.bookmarks_list(**HERE))["bookmarks"] == []
    assert await error_of(client.bookmarks_add(**HERE, title="x", type="link")) == "invalid_link"


async def test_user_groups_have_members(client):
    group = (await client.usergroups_create(name="On call", handle="oncall"))["usergroup"]
    await client.usergroups_users_update(usergroup=group["id"], users=["U0ANA", "U0BEN"])
    listed = (await client.usergroups_list(include_users=True))["usergroups"]
    assert [(each["handle"], each["users"], each["user_count"]) for each in listed] == [
        ("oncall", ["U0ANA", "U0BEN"], 2)
    ]
    assert "users" not in (await client.usergroups_list())["usergroups"][0]
    assert (await client.usergroups_users_list(usergroup=group["id"]))["users"] == ["U0ANA", "U0BEN"]
    refused = client.usergroups_users_update(usergroup=group["id"], users=["U9NOBODY"])
    assert await error_of(refused) == "invalid_users"
    assert await error_of(client.usergroups_create(name="On call")) == "name_already_exists"
    assert await error_of(client.usergroups_users_list(usergroup="S9")) == "no_such_subteam"


async def test_the_emoji_are_those_that_the_test_sets(slack, client):
    slack.workspace.lists.emoji["party"] = "https://example.org/party.gif"
    assert (await client.emoji_list())["emoji"] == {"party": "https://example.org/party.gif"}


async def test_the_workspace_has_a_name_and_a_domain(client):
    team = (await client.team_info())["team"]
    assert (team["id"], team["name"], team["domain"]) == ("T0LOCAL", "Playground", "local")
    assert await error_of(client.team_info(team="T9")) == "invalid_arguments"
