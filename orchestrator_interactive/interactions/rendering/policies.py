"""How the messages for a model are to look: policies, by name.

A policy gets messages in OpenAI's format and gives such messages back. What passed between agents comes to it as
messages with one field more, `agent`: what kind it is ("call" or "result"), the other agent's id, the correlation id,
and the score where there is one. A policy that shows them takes this field away; whatever still has it in the end is
left out, so that policies that know nothing of other agents need not care.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from orchestrator_interactive.interactions.errors import InteractionError

Message = dict[str, Any]
Policy = Callable[..., list[Message]]
AnyPolicy = TypeVar("AnyPolicy", bound=Policy)

AGENT = "agent"
# Of one text in a summary, and of how many of the latest texts.
_MOST_CHARS, _MOST_TEXTS = 300, 20

_POLICIES: dict[str, Policy] = {}


class PolicyError(InteractionError):
    """A render policy gave back what cannot be sent."""


class UnknownPolicy(PolicyError, LookupError):  # noqa: N818 - a fact about the name
    """There is no render policy of this name."""


def register_policy(name: str) -> Callable[[AnyPolicy], AnyPolicy]:
    """Make a function a render policy: `policy(messages, **kwargs) -> messages`.

    Raises:
        ValueError: the name is blank, or another function has it.
    """
    if not name.strip():
        raise ValueError("A render policy needs a name that is not blank.")

    def registered(policy: AnyPolicy) -> AnyPolicy:
        known = _POLICIES.get(name)
        if known is not None and _place(known) != _place(policy):
            raise ValueError(f"There is a render policy {name!r} already: give this one another name.")
        _POLICIES[name] = policy
        return policy

    return registered


def policy_names() -> list[str]:
    return sorted(_POLICIES)


def policy_named(name: str) -> Policy:
    """The policy of a name.

    Raises:
        UnknownPolicy: there is none; the message tells which there are.
    """
    policy = _POLICIES.get(name)
    if policy is None:
        raise UnknownPolicy(f"There is no render policy {name!r}; there are: {', '.join(policy_names())}.")
    return policy


def apply_policy(name: str, messages: list[Message], **kwargs: Any) -> list[Message]:
    """What a policy makes of the messages.

    Raises:
        UnknownPolicy: there is none of this name.
        PolicyError: it gave back something else than messages, or parted calls from their results.
    """
    made = policy_named(name)(messages, **kwargs)
    if not isinstance(made, list) or not all(isinstance(each, dict) and "role" in each for each in made):
        raise PolicyError(f"The render policy {name!r} is to give back a list of messages, each a dict with its role.")
    shown = [message for message in made if AGENT not in message]
    if problem := torn_pair(shown):
        raise PolicyError(f"The render policy {name!r} tears a call from its result: {problem}.")
    return shown


def torn_pair(messages: list[Message]) -> str | None:
    """Which call is without a result right behind it, or the other way round."""
    waiting: dict[str, None] = {}
    for message in messages:
        if message["role"] == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id not in waiting:
                return f"{call_id!r} has a result, and no call before it"
            del waiting[call_id]
            continue
        if waiting:
            break
        if message["role"] == "assistant":
            waiting = dict.fromkeys(str(call["id"]) for call in message.get("tool_calls") or () if "id" in call)
    return f"{next(iter(waiting))!r} is called, and has no result right after it" if waiting else None


@register_policy("default")
def default(messages: list[Message], **_kwargs: Any) -> list[Message]:
    """Everything but what passed between agents."""
    return messages


@register_policy("agents")
def agents(messages: list[Message], **_kwargs: Any) -> list[Message]:
    """Everything; what passed between agents says so, and no line of it can pass for somebody else's."""
    return [_between_agents(message) if AGENT in message else message for message in messages]


@register_policy("summary")
def summary(messages: list[Message], *, keep_last: int = 10, **_kwargs: Any) -> list[Message]:
    """The last messages, and one note in the place of those before: what people asked, which tools ran, how it ended.

    Args:
        messages: those to be summarised.
        keep_last: how many messages stay; a few more where a call would be parted from its result.

    Raises:
        ValueError: `keep_last` is negative.
    """
    if keep_last < 0:
        raise ValueError("`keep_last` is a number of messages: 0 or more.")
    start = max(len(messages) - keep_last, 0)
    while 0 < start < len(messages) and messages[start]["role"] == "tool":
        start -= 1
    lead = next((i for i, message in enumerate(messages) if message["role"] not in ("system", "developer")), 0)
    if start <= lead:
        return messages
    note = {"role": "user", "content": _note(messages[lead:start])}
    return [*messages[:lead], note, *messages[start:]]


def _note(messages: list[Message]) -> str:
    asked = [text for m in messages if m["role"] == "user" and AGENT not in m and (text := _text(m))]
    said = [text for m in messages if m["role"] == "assistant" and AGENT not in m and (text := _text(m))]
    tools = Counter(call["function"]["name"] for m in messages for call in m.get("tool_calls") or ())
    others = Counter(m[AGENT]["agent_id"] for m in messages if m.get(AGENT, {}).get("kind") == "call")
    count = "1 message that is" if len(messages) == 1 else f"{len(messages)} messages that are"
    lines = [f"[Earlier in this conversation, {count} not shown:]"]
    if len(asked) > _MOST_TEXTS:
        lines.append(f"- {len(asked) - _MOST_TEXTS} more messages of people came before these.")
    lines += [f"- A person wrote: {text}" for text in asked[-_MOST_TEXTS:]]
    if tools:
        lines.append(f"- Tools that ran: {_counted(tools)}.")
    if others:
        lines.append(f"- Agents that were asked: {_counted(others)}.")
    if said:
        lines.append(f"- The last answer was: {said[-1]}")
    return "\n".join(lines)


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{_line(name)} ({times} {'time' if times == 1 else 'times'})" for name, times in names.items())


def _text(message: Message) -> str:
    """The text of a message in one line."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "[image]")) for part in content)
    return _line(str(content))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]} …"


def _between_agents(message: Message) -> Message:
    told = message[AGENT]
    other = _line(str(told["agent_id"])) if told.get("agent_id") else "another agent"
    if told["kind"] == "call":
        head = f"[I asked {other}:]"
    else:
        score = "" if told.get("score") is None else f", score {told['score']:g}"
        head = f"[The answer of {other}{score}:]"
    lines = [head, *str(message["content"]).splitlines()]
    return {"role": message["role"], "content": "\n  ".join(lines)}


def _place(policy: Policy) -> tuple[Any, Any]:
    """Where a function is defined; a module that is loaded again defines the same one."""
    return getattr(policy, "__module__", None), getattr(policy, "__qualname__", policy)
