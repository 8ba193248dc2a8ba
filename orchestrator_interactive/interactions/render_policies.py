"""Render policies: named functions that transform the messages for a model.

A policy takes and returns messages in OpenAI's format. A message between agents has an additional field `agent`: the
kind ("call" or "result"), the other agent's id, the correlation id, and the score if there is one. A policy that shows
such a message removes this field. Messages that still have it afterwards are dropped, so that other policies can ignore
them.
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
# Maximum length of one text in a summary, and maximum number of texts.
_MAX_CHARS, _MAX_TEXTS = 300, 20

_POLICIES: dict[str, Policy] = {}


class PolicyError(InteractionError):
    """A render policy returned messages that cannot be sent."""


class UnknownPolicy(PolicyError, LookupError):  # noqa: N818 - a fact about the name
    """There is no render policy of this name."""


def _place(policy: Policy) -> tuple[Any, Any]:
    """Return where a function is defined; a reloaded module defines the same function again."""
    return getattr(policy, "__module__", None), getattr(policy, "__qualname__", policy)


def register_policy(name: str) -> Callable[[AnyPolicy], AnyPolicy]:
    """Register a function as a render policy: `policy(messages, **kwargs) -> messages`.

    A policy of this module, such as `summary`, can be replaced.

    Raises:
        ValueError: the name is blank, or another module has registered a policy of this name.
    """
    if not name.strip():
        raise ValueError("The name of a render policy must not be blank.")

    def registered(policy: AnyPolicy) -> AnyPolicy:
        known = _POLICIES.get(name)
        places = {_place(each) for each in (known, policy) if each is not None}
        if len(places) > 1 and all(module != __name__ for module, _ in places):
            raise ValueError(f"There is already a render policy {name!r}: choose another name.")
        _POLICIES[name] = policy
        return policy

    return registered


def policy_named(name: str) -> Policy:
    """Return the policy of this name.

    Raises:
        UnknownPolicy: there is no such policy; the message lists the policies.
    """
    policy = _POLICIES.get(name)
    if policy is None:
        raise UnknownPolicy(f"There is no render policy {name!r}; existing policies: {', '.join(sorted(_POLICIES))}.")
    return policy


def apply_policy(name: str, messages: list[Message], **kwargs: Any) -> list[Message]:
    """Apply a policy to the messages.

    Raises:
        UnknownPolicy: there is no such policy.
        PolicyError: it did not return messages, or separated calls from their results.
    """
    made = policy_named(name)(messages, **kwargs)
    if not isinstance(made, list) or not all(isinstance(each, dict) and "role" in each for each in made):
        raise PolicyError(f"The render policy {name!r} must return a list of messages, each a dict with a role.")
    shown = [message for message in made if AGENT not in message]
    if problem := incomplete_pair(shown):
        raise PolicyError(f"The render policy {name!r} separates a call from its result: {problem}.")
    return shown


def incomplete_pair(messages: list[Message]) -> str | None:
    """Describe the first call without a result directly after it, or the first result without a call."""
    waiting: dict[str, None] = {}
    for message in messages:
        if message["role"] == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id not in waiting:
                return f"{call_id!r} has a result but no call before it"
            del waiting[call_id]
            continue
        if waiting:
            break
        if message["role"] == "assistant":
            waiting = dict.fromkeys(str(call["id"]) for call in message.get("tool_calls") or () if "id" in call)
    return f"{next(iter(waiting))!r} has no result directly after its call" if waiting else None


@register_policy("default")
def default(messages: list[Message], **_kwargs: Any) -> list[Message]:
    """Show everything except messages between agents."""
    return messages


@register_policy("agents")
def agents(messages: list[Message], **_kwargs: Any) -> list[Message]:
    """Show everything; messages between agents are labelled and indented, so that they cannot pass for others."""
    return [_between_agents(message) if AGENT in message else message for message in messages]


@register_policy("summary")
def summary(messages: list[Message], *, keep_last: int = 10, **_kwargs: Any) -> list[Message]:
    """Show the last messages, and one note about the earlier ones: user messages, tools that ran and the last answer.

    Args:
        messages: all messages.
        keep_last: number of messages to keep; more if a call would be separated from its result.

    Raises:
        ValueError: `keep_last` is negative.
    """
    if keep_last < 0:
        raise ValueError("`keep_last` must be 0 or more.")
    start = max(len(messages) - keep_last, 0)
    while 0 < start < len(messages) and messages[start]["role"] == "tool":
        start -= 1
    lead = next((i for i, message in enumerate(messages) if message["role"] not in ("system", "developer")), 0)
    if start <= lead:
        return messages
    note = {"role": "user", "content": _note(messages[lead:start])}
    return [*messages[:lead], note, *messages[start:]]


def _note(messages: list[Message]) -> str:
    user_texts = [text for m in messages if m["role"] == "user" and AGENT not in m and (text := _text(m))]
    answers = [text for m in messages if m["role"] == "assistant" and AGENT not in m and (text := _text(m))]
    tools = Counter(call["function"]["name"] for m in messages for call in m.get("tool_calls") or ())
    others = Counter(m[AGENT]["agent_id"] for m in messages if m.get(AGENT, {}).get("kind") == "call")
    count = "1 message that is" if len(messages) == 1 else f"{len(messages)} messages that are"
    lines = [f"[Earlier in this conversation, {count} not shown:]"]
    if len(user_texts) > _MAX_TEXTS:
        lines.append(f"- {len(user_texts) - _MAX_TEXTS} more messages of people came before these.")
    lines += [f"- A person wrote: {text}" for text in user_texts[-_MAX_TEXTS:]]
    if tools:
        lines.append(f"- Tools that ran: {_counted(tools)}.")
    if others:
        lines.append(f"- Agents that were asked: {_counted(others)}.")
    if answers:
        lines.append(f"- The last answer was: {answers[-1]}")
    return "\n".join(lines)


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{_line(name)} ({times} {'time' if times == 1 else 'times'})" for name, times in names.items())


def _text(message: Message) -> str:
    """Return the text of a message in one line."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "[image]")) for part in content)
    return _line(str(content))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]} …"


def _between_agents(message: Message) -> Message:
    info = message[AGENT]
    other = _line(str(info["agent_id"])) if info.get("agent_id") else "another agent"
    if info["kind"] == "call":
        head = f"[I asked {other}:]"
    else:
        score = "" if info.get("score") is None else f", score {info['score']:g}"
        head = f"[The answer of {other}{score}:]"
    lines = [head, *str(message["content"]).splitlines()]
    return {"role": message["role"], "content": "\n  ".join(lines)}
