"""What people give to the interactive elements of blocks: chosen options, members and texts, in Slack's JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from local_slack.json_limits import Json

# The name of a value, which `selected_` or `initial_` precedes, by type of element; a plural is a list.
_NAMES = {
    "checkboxes": "options",
    "datepicker": "date",
    "datetimepicker": "date_time",
    "overflow": "option",
    "radio_buttons": "option",
    "timepicker": "time",
    **{f"{source}_select": name for source, name in (("static", "option"), ("external", "option"))},
    **{f"multi_{source}_select": "options" for source in ("static", "external")},
    **{f"{name}s_select": name for name in ("user", "channel", "conversation")},
    **{f"multi_{name}s_select": f"{name}s" for name in ("user", "channel", "conversation")},
}
# Slack keeps no value of these.
_PRESSED = {"button", "feedback_buttons", "icon_button", "workflow_button"}
_STATELESS = {*_PRESSED, "overflow"}
_LONGEST_TEXT = 3_000


def elements_of(blocks: Sequence[Json]) -> Iterator[tuple[Json, Json]]:
    """Return the interactive elements with their blocks, in order."""
    for block in blocks:
        inside = block.get("elements", ()) if block["type"] in ("actions", "context_actions") else ()
        for element in (*inside, block.get("accessory"), block.get("element")):
            if isinstance(element, dict) and "action_id" in element:
                yield block, element


def find_element(
    blocks: Sequence[Json], action_id: str, block_id: str | None, value: Any, user: str
) -> tuple[Json, Json]:
    """Return the element that ``user`` sees and its block; among buttons of one name, that with ``value``.

    Raises SlackRefused ``no_such_action``.
    """
    for block, element in elements_of(blocks):
        if element["action_id"] != action_id or block_id not in {None, block["block_id"]}:
            continue
        readers = element.get("visible_to_user_ids")
        of_value = element["type"] not in _PRESSED or value in [
            None,
            *(each.get("value") for each in _buttons(element)),
        ]
        if of_value and (not readers or user in readers):
            return block, element
    raise SlackRefused("no_such_action")


def action_json(block: Json, element: Json, value: Any, members: Collection[str]) -> Json:
    """Return the entry of ``actions`` for a click, or for the choice of ``value``."""
    action = {"type": element["type"], "action_id": element["action_id"], "block_id": block["block_id"]}
    if element["type"] not in _PRESSED:
        return action | value_json(element, value, members)
    pressed = next(each for each in _buttons(element) if value in (None, each.get("value")))
    return action | {name: pressed[name] for name in ("text", "value", "style") if name in pressed}


def value_json(element: Json, given: Any, members: Collection[str]) -> Json:
    """Return the value of an element in a state; ``given`` are values of options, ids of members, or a text.

    Without ``given`` it is the initial one. Raises SlackRefused: ``invalid_arguments`` for what the element does not
    offer, ``invalid_input`` for a text of the wrong length.
    """
    kind = element["type"]
    name = _NAMES.get(kind)
    if name is None:
        return {"type": kind, "value": element.get("initial_value") if given is None else _text(element, given)}
    if given is None:
        return {"type": kind, f"selected_{name}": element.get(f"initial_{name}", [] if name.endswith("s") else None)}
    if not name.endswith("s"):
        return {"type": kind, f"selected_{name}": _chosen(element, name, given, members)}
    if not isinstance(given, list | tuple) or len(given) > element.get("max_selected_items", len(given)):
        raise SlackRefused("invalid_arguments", f"[ERROR] cannot choose {given!r} in {element['action_id']}")
    return {"type": kind, f"selected_{name}": [_chosen(element, name[:-1], each, members) for each in given]}


def state_of(
    blocks: Sequence[Json], given: Callable[[str, str], Any], before: Mapping[str, Any], members: Collection[str]
) -> Json:
    """Return the values of all inputs by block and action: the ``given`` ones, else those ``before``, else initial."""
    state: Json = {}
    for block, element in elements_of(blocks):
        if element["type"] in _STATELESS:
            continue
        place, action_id = block["block_id"], element["action_id"]
        value, old = given(place, action_id), before.get(place, {}).get(action_id, {})
        is_old = value is None and old.get("type") == element["type"]
        state.setdefault(place, {})[action_id] = old if is_old else value_json(element, value, members)
    return state


def missing_inputs(blocks: Sequence[Json], state: Mapping[str, Any]) -> list[str]:
    """Return the ids of the required input blocks without a value."""
    required = [block for block in blocks if block["type"] == "input" and not block.get("optional")]
    values = {block["block_id"]: state[block["block_id"]][block["element"]["action_id"]] for block in required}
    return [
        place
        for place, value in values.items()
        if all(part in (None, "", []) for name, part in value.items() if name != "type")
    ]


def _buttons(element: Json) -> tuple[Json, ...]:
    """Return the objects with a value: the button itself, or both of a pair."""
    if element["type"] == "feedback_buttons":
        return element["positive_button"], element["negative_button"]
    return (element,)


def _chosen(element: Json, name: str, given: Any, members: Collection[str]) -> Any:
    if not isinstance(given, str | int) or (name == "user" and given not in members):
        raise SlackRefused("invalid_arguments", f"[ERROR] cannot choose {given!r} in {element['action_id']}")
    if name != "option":
        return given
    groups = [element, *element.get("option_groups", ())]
    options = (option for group in groups for option in group.get("options", ()))
    if chosen := next((option for option in options if option.get("value") == given), None):
        return chosen
    raise SlackRefused("invalid_arguments", f"[ERROR] no such option in {element['action_id']}: {given!r}")


def _text(element: Json, given: Any) -> str | None:
    if not isinstance(given, str | int | float):
        raise SlackRefused("invalid_arguments", f"[ERROR] must provide a string for {element['action_id']}")
    text = str(given)
    least, most = element.get("min_length", 0), element.get("max_length", _LONGEST_TEXT)
    if text and not least <= len(text) <= most:
        raise SlackRefused("invalid_input", f"{element['action_id']}: must have {least} to {most} characters")
    return text or None
