"""Choose the demo's next step by word rules: tool calls while one is missing, then an answer from their results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from orchestrator_interactive.modules.provider_demo import commands
from orchestrator_interactive.modules.provider_demo.commands import DemoStep, said
from orchestrator_interactive.modules.provider_demo.conversation import call_key, read_task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import Message
    from orchestrator_interactive.modules.provider_demo.conversation import DemoTask, Line

    Call = tuple[str, dict[str, Any]]

_MAX_WAIT_S = 120
_MAX_FILES = 6
_SHOWN_LINES = 12
_HELP = (
    "I am the **offline demo** of this agent: I use word rules, not a language model. The tools I use, the files "
    "I read and the way you can steer and stop me are real. Try:\n"
    "- “look through the notes and suggest improvements”, and write on while I work: “also check the "
    "budget”, or “that's enough”; I read a message that begins with “!” at once\n"
    "- “search for launch”, “what's in `roadmap.md`?”, “todo: buy cake, call the printers”\n"
    "- “save it into `review.md`” (I ask before I write), “take 30 seconds”\n"
    '- “demo: call ask_user {"question": "Which launch date?", "options": ["3 May", "10 May"]}” asks you\n'
    '- “demo: table”, “demo: code”, “demo: long” show how answers look; “demo: call read_file {"path": "notes.md"}” '
    "calls any tool that is mounted"
)
# Bounded, so that long messages stay fast.
_I = re.IGNORECASE
_PATH = r"(?<![\w./-])[./]{0,6}\w[\w./-]{0,200}\.(?:md|txt|csv|json|ya?ml|toml|py|log)\b"
# The line of a text file that came with a message.
_ATTACHED = re.compile(r"^\s*\([^()\n]*: text/[^()\n]*, stored at (files/\w+/[^,)\n]+)", re.MULTILINE)
_WRITE = re.compile(
    rf"\b(write|save|put|add|append)\b(.{{0,1000}}?)\b(?:in|into|to|as)\s+`?({_PATH})`?(?:\s*:\s*(.+))?", _I | re.DOTALL
)
_THAT = re.compile(r"\W*(?:it|this|that|them|everything|(?:the|your) (?:summary|findings|answer|review))?\W*", _I)
_SEARCH = re.compile(r"\b(?:search(?: for)?|find|grep|mentions?)\s+(.+)", _I)
_ALSO = re.compile(r"\b(?:also|focus on|what about|forget|check|look (?:at|for|into)|consider)\s+(.+)", _I)
_NO_QUERY = re.compile(
    r"^(?:(?:the|a|an|our|my|for|about|of|also|check|search|look|find|every|all|any|mentions?)\s+)+"
    r"|\s+in (?:the |my )?(?:notes?|files?|workspace)\b.*$|\s+(?:please|too|as well|first|instead|again|now)$",
    _I,
)
_ASKS = re.compile(r"\b(?:what|where|who|when|which|how (?:much|many|long))\b.{0,80}?\b(?:is|are|was|were)\s+(.+)", _I)
_ENOUGH = re.compile(r"\bstop (?:reading|searching|it|now)\b|^\W*stop\W*$|\bskip\b|\benough\b|\bjust answer\b", _I)
_REVIEW = re.compile(r"\b(?:look (?:through|at|over)|review|read|notes?|files?|improve|suggest|summar)\w*\b", _I)
_TODO = re.compile(r"\b(?:to-?dos?|to do list|checklist|task list)\b", _I)
_WAIT = re.compile(r"\b(?:wait|sleep|take)\b\D{0,20}?(\d{1,6})\s*(s|secs?|seconds?|m|mins?|minutes?)\b", _I)
_ABOUT = re.compile(r"\b(?:who|what) are you\b|\bwhat can you do\b|^\W*(?:hello|hi|hey|help)\b", _I)
_LISTED = re.compile(r"(.+\.(?:md|txt|csv|json|ya?ml|toml|rst|html|py|log)) \([\d,]+ bytes\)", _I)

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATED = re.compile(rf"\b(launch|release|deadline|pilot)\w*\b.{{0,50}}?\b(\d{{1,2}} (?:{_MONTHS}))\b", re.IGNORECASE)
_WITHOUT_OWNER = re.compile(r"\s*[-*+] \[ \] (?!.*(?:@\w|\((?!by\b)[A-Z]))(.+)")
_SUGGESTIONS = (
    ("Give open items an owner", _WITHOUT_OWNER),
    ("Clear up the lines marked as unfinished", re.compile(r".*\b(?:TODO|FIXME|TBD)\b.*")),
    ("Answer the open questions", re.compile(r"(?!.*\[ \]).*\?(?=\s|$).*")),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A request of a message, about a path, a query, seconds or a command; `call` fulfils it, except for a review."""

    kind: Literal["demo", "review", "search", "read", "write", "todo", "wait", "about", "enough", "chat"]
    about: str = ""
    call: Call | None = None


def next_step(messages: Sequence[Message], tool_names: Collection[str]) -> DemoStep:
    """Return the next answer of the model: a function of the conversation only."""
    task = read_task(messages)
    task.tool_names = tool_names
    urgent = [line for line in task.unread if line.is_urgent]
    if task.late:
        lines = (f"- {c.label} {'failed' if c.failed else 'is done'}: {_one_line(c.output or '')}" for c in task.late)
        return said("\n".join(("**The rest has come in.** I had answered without it:", *lines)))
    wish = _wish_of(task.prompt, during=task.is_steered, answer=task.previous_answer)
    if wish.kind in ("chat", "enough"):
        wish = _wish_of(task.prompt, answer=task.previous_answer)
    injected = [(line, _wish_of(line.text, during=True)) for line in task.injected]
    if wish.kind == "demo" and not injected and (ending := commands.ending_of(wish.about, task.said)):
        return ending
    is_enough = any(each.kind == "enough" for _, each in injected)
    # The injected messages come first, then the task.
    calls, lead = [call for _, each in injected for call in _missing_calls(task, each)], ""
    if calls and calls[0][0] == "search_files":
        lead = f"You also mention “{calls[0][1]['query']}”: I look for that first."
    elif not calls and not is_enough:
        calls = _missing_calls(task, wish)
        lead = "I'll look at the files." if wish.kind == "review" and not task.calls else ""
    if calls:
        replies = [_reply_at_once(task, line.text, each) for line, each in injected if line in urgent]
        return _calling(_joined(*replies) or lead, calls, messages)
    notes = _notes(task, injected)
    if (running := [call.label for call in task.calls if call.output is None]) and not is_enough:
        return said(_joined(f"I am still waiting for {' and '.join(running)}; then I continue.", notes))
    if wish.kind == "wait" and (is_enough or any(line.is_urgent for line in task.injected)):
        wish = Wish("enough")
    wait_s = float(wish.about) if wish.kind == "wait" else 0.0
    pause = f"I am taking my time: {wait_s:g} seconds, as you asked." if wait_s else ""
    found = [_report(task, each) for _, each in injected if each.kind in ("search", "read", "demo")]
    if wish.kind == "demo":  # its answer may be long
        return said(_joined(*found, notes, "" if is_enough else _report(task, wish)))
    failures = [f"- {call.label}: {call.output}" for call in task.calls if call.failed]
    failed = "\n".join(("**What did not work**", *failures)) if failures else ""
    return said(_joined(pause, *found, _report(task, wish), failed, notes), wait_s)


def _calling(lead: str, calls: Sequence[Call], messages: Sequence[Message]) -> DemoStep:
    """Number the calls after the highest number so far; a shortened conversation does not begin with the first one."""
    made = (block for message in messages if isinstance(message.content, list) for block in message.content)
    found = (re.match(r"demo-(\d+)", block.id) for block in made if isinstance(block, ToolCallBlock))
    last = max((int(number[1]) for number in found if number), default=0)
    different = [call for at, call in enumerate(calls) if call not in calls[:at]]
    numbered = enumerate(different, last + 1)
    blocks = [ToolCallBlock(id=f"demo-{at}{call_key(*c)}", name=c[0], input=c[1]) for at, c in numbered]
    return DemoStep([*([TextBlock(text=lead)] if lead else []), *blocks], finish_reason="tool_use")


def _wish_of(text: str, *, during: bool = False, answer: str = "") -> Wish:  # noqa: PLR0911 - one for each kind
    """Return the wish of a prompt after an answer, or with `during` of a message to a running task."""
    if (command := commands.command_of(text)) is not None:
        call = commands.call_of(command)
        return Wish("demo", command, call if isinstance(call, tuple) else None)
    text = text.replace("\u2019", "'")
    if during and _ENOUGH.search(text):
        return Wish("enough")
    if into := _WRITE.search(text):
        said = (into[4] or ("" if _THAT.fullmatch(into[2]) else into[2])).strip(" \t:,`'\"“”")
        if during and not said:
            return Wish("chat")  # there is no answer to save yet
        given = {"path": into[3], "content": (said or answer) + "\n", "append": into[1].lower() in ("add", "append")}
        return Wish("write", into[3], ("write_file", given) if said or answer else None)
    if path := _ATTACHED.search(text) or re.search(f"({_PATH})", text, _I):
        return Wish("read", path[1], _read(path[1]))
    asks = (_ALSO.search(text) or _ASKS.search(text)) if during else None
    if (found := _SEARCH.search(text) or asks) and (query := _query(found[1])):
        return Wish("search", query, ("search_files", {"query": query}))
    return Wish("chat") if during else _general_wish(text)


def _general_wish(text: str) -> Wish:
    if _TODO.search(text):
        items = [item for part in re.split(r"[\n,;]", text.partition(":")[2]) if (item := part.strip("-*. "))]
        return Wish("todo", call=_progress(items, -1) if items else ("todo", {"action": "show"}))
    if wait := _WAIT.search(text):
        return Wish("wait", str(min(int(wait[1]) * (60 if wait[2].lower().startswith("m") else 1), _MAX_WAIT_S)))
    return Wish("review" if _REVIEW.search(text) else "about" if _ABOUT.search(text) else "chat")


def _query(rest: str) -> str:
    query, previous = re.split(r"[,.;:!?\n]", rest[:300])[0].strip(), ""
    while query != previous:
        query, previous = _NO_QUERY.sub("", query).strip(" '\"“”`()"), query
    return query[:60]


def _missing_calls(task: DemoTask, wish: Wish) -> list[Call]:
    """Return the missing calls of the first incomplete round; none while its tools are running."""
    if wish.kind == "demo" and wish.call is None and "todo" in task.tool_names:
        # The reply to an urgent message is posted at once only with a call.
        return [("todo", {"action": "show"})] if any(line.is_urgent for line in task.unread) else []
    for calls in _review_rounds(task) if wish.kind == "review" else [[wish.call]] if wish.call else []:
        known = [(call, task.call(*call)) for call in calls if call[0] in task.tool_names]
        if any(made is not None and made.output is None for _, made in known):
            return []
        if missing := [call for call, made in known if made is None]:
            return missing
    return []


def _reply_at_once(task: DemoTask, text: str, wish: Wish) -> str:
    """Answer an urgent message from what is known so far."""
    files = [path for path in _listed(task) if task.output(*_read(path)) is not None]
    if wish.kind == "search":
        known = ((path, (task.output(*_read(path)) or "").splitlines()) for path in files)
        hits = [
            f"- {path}:{number}: {line.strip()}"
            for path, lines in known
            for number, line in enumerate(lines, 1)
            if wish.about.lower() in line.lower()
        ]
        found = "\n".join(hits[:5]) if hits else "nothing in what I have read so far; I look for it first."
        return f"You also mention “{wish.about}”: {'' if not hits else chr(10)}{found}"
    if wish.kind == "demo":
        return f"You also wrote “{_one_line(text.lstrip('! '))}”: I do it now."
    if wish.kind == "read":
        return f"You also mention `{wish.about}`: I read it now."
    done = f"So far I have read {_counted(len(files), 'file')}. " if files else ""
    return f"You also wrote “{_one_line(text.lstrip('! '))}”. {done}I go on."


def _review_rounds(task: DemoTask) -> Iterator[list[Call]]:
    yield [("list_files", {}), _progress(["List the files", "Read the files", "Write up what I found"], 0)]
    files = _listed(task)
    items = ["List the files", *(f"Read {path}" for path in files), "Write up what I found"]
    for at, path in enumerate(files, 1):
        yield [_read(path), _progress(items, at)]
    yield [_progress(items, len(items) - 1)] if files else []


def _progress(items: Sequence[str], at: int) -> Call:
    states = ["done" if n < at else "in_progress" if n == at else "pending" for n in range(len(items))]
    return "todo", {"items": [{"text": text, "status": state} for text, state in zip(items, states, strict=True)]}


def _read(path: str) -> Call:
    return "read_file", {"path": path}


def _listed(task: DemoTask) -> list[str]:
    lines = (task.output("list_files", {}) or "").splitlines()
    return [found[1] for line in lines if (found := _LISTED.fullmatch(line))][:_MAX_FILES]


def _report(task: DemoTask, wish: Wish) -> str:  # noqa: PLR0911 - one for each kind
    """Return the result of a wish in Markdown; blank without a successful result of its call."""
    match wish.kind:
        case "demo":
            return commands.command_text(wish.about, task)
        case "review":
            return _review(task)
        case "enough":
            return "I stopped waiting, because you wrote."
        case "wait":
            return "That was it: I am done waiting."
        case "about":
            return _HELP
        case "write" if wish.call is None:
            return f"What shall I write into `{wish.about}`? Put it after a colon: “write into {wish.about}: …”."
    if wish.call is not None:
        return _result(task, wish, wish.call)
    return (
        f"You wrote: “{_one_line(task.prompt)}”. I am only the offline demo and cannot say much. "
        "I can look through your files: “look through the notes and suggest improvements”, or “help”."
    )


def _result(task: DemoTask, wish: Wish, call: Call) -> str:
    if task.call(*call) is None:
        return f"I could not {wish.kind} “{wish.about}”: in this turn I have no tool for it."
    lines = (task.output(*call) or "").replace("```", "'''").splitlines()
    if not lines:
        return ""
    match wish.kind:
        case "search":
            hits = [line for line in lines if re.match(r".+?:\d+: ", line)]
            found = _counted(len(hits), "line") if hits else "I found nothing in the files."
            return "\n".join((f"**“{wish.about}”**: {found}", *(f"- {hit}" for hit in hits[:10])))
        case "read":
            shown = "\n".join(lines[:_SHOWN_LINES])
            return f"`{wish.about}`, {_counted(len(lines), 'line')}:\n```\n{shown}\n```"
    return "\n".join(("**Saved**" if wish.kind == "write" else "**The to-do list**", *lines))


def _notes(task: DemoTask, injected: Sequence[tuple[Line, Wish]]) -> str:
    """Return the result of each message that arrived during the task."""
    lines = []
    for line, wish in injected:
        done = {"search": "I searched for it", "read": "I read it", "write": "I wrote it", "demo": "see above"}
        done["enough"] = "I stopped there"
        said = done.get(wish.kind, "I have read it. It asks for nothing that a demo can do")
        if wish.call:
            made = task.call(*wish.call)
            if made is None or made.failed:
                said = "I could not do that"
            elif made.output is None:
                said = "it is not done yet"
        lines.append(f"- “{_one_line(line.quote)}”{', at once' if line.is_urgent else ''}: {said}.")
    return "\n".join(("**While I was working you also wrote:**", *lines)) if lines else ""


def _review(task: DemoTask) -> str:
    """Return a report in Markdown about the files that were read."""
    outputs = {path: task.output(*_read(path)) for path in _listed(task)}
    files = {path: text.splitlines() for path, text in outputs.items() if text is not None}
    unread = ", ".join(f"`{path}`" for path in outputs if path not in files)
    unread = f"Not read: {unread}." if unread else ""
    if not files:
        return _joined("I have read no files of the workspace.", unread)
    lines = [(f"`{path}:{n}`", line) for path, content in files.items() for n, line in enumerate(content, 1)]
    dates: dict[str, dict[str, str]] = {}
    for place, line in lines:
        if dated := _DATED.search(line):
            dates.setdefault(dated[1].lower(), {}).setdefault(dated[2], place)
    advice = [
        f"**Settle the {topic} date.** The files do not agree: {', '.join(f'{d} in {p}' for d, p in by_date.items())}."
        for topic, by_date in dates.items()
        if len(by_date) > 1
    ]
    for title, pattern in _SUGGESTIONS:
        if found := [(place, line.strip(" #-*+[]")) for place, line in lines if pattern.fullmatch(line)]:
            advice.append(f"**{title}.** {_counted(len(found), 'line')}, such as “{found[0][1]}” ({found[0][0]}).")
    return _joined(
        f"I have read **{_counted(len(files), 'file')}**, {_counted(len(lines), 'line')} in all.",
        "\n".join(f"- `{path}`: {_counted(len(content), 'line')}" for path, content in files.items()),
        "\n".join(("**What I suggest**", *(f"{n}. {line}" for n, line in enumerate(advice, 1)))) if advice else "",
        unread,
        "Next I could save this: “save it into `review.md`”.",
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"
