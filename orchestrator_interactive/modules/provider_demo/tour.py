"""Choose the demo's next step by word rules: tool calls while one is missing, then an answer from their results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock
from orchestrator_interactive.modules.provider_demo.conversation import is_urgent, read_task, without_id, without_name
from orchestrator_interactive.modules.provider_demo.review import counted, report_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message
    from orchestrator_interactive.modules.provider_demo.conversation import DemoTask

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
    "- “save it into `review.md`”, “take 30 seconds”"
)
_LONG_ANSWER = (
    "This answer is longer than a model may write at once. The demo stops it after fifteen words and reports that it "
    "was cut; then it is asked to continue, until all of it is there: you should read it in one piece."
)
_MAX_WORDS = 15

# Bounded, so that long messages stay fast.
_I = re.IGNORECASE
_PATH = r"(?<![\w./-])[./]{0,6}\w[\w./-]{0,200}\.(?:md|txt|csv|json|ya?ml|toml|py|log)\b"
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
_ENOUGH = re.compile(r"\bstop (?:reading|searching|it|now)\b|^\W*stop\W*$|\bskip\b|\benough\b|\bjust answer\b", _I)
_REVIEW = re.compile(r"\b(?:look (?:through|at|over)|review|read|notes?|files?|improve|suggest|summar)\w*\b", _I)
_TODO = re.compile(r"\b(?:to-?dos?|to do list|checklist|task list)\b", _I)
_WAIT = re.compile(r"\b(?:wait|sleep|take)\b\D{0,20}?(\d{1,6})\s*(s|secs?|seconds?|m|mins?|minutes?)\b", _I)
_ABOUT = re.compile(r"\b(?:who|what) are you\b|\bwhat can you do\b|^\W*(?:hello|hi|hey|help)\b", _I)
_LISTED = re.compile(r"(.+\.(?:md|txt|csv|json|ya?ml|toml|rst|html|py|log)) \([\d,]+ bytes\)", _I)


@dataclass(frozen=True, slots=True)
class Wish:
    """A request of a message. `about` is a path, a query, seconds or the items of a list; `text` is for a file."""

    kind: Literal["review", "search", "read", "write", "todo", "wait", "about", "enough", "chat"]
    about: str = ""
    text: str = ""
    append: bool = False


Injected = tuple[str, Wish]  # a message that arrived during the task, with its author, and its wish


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One answer of the model. Its first paragraph takes `wait_s` seconds. `refusal` explains a refused one."""

    blocks: list[ContentBlock]
    wait_s: float = 0.0
    finish_reason: str = "end_turn"
    refusal: str | None = None


def next_step(messages: Sequence[Message], tool_names: Collection[str]) -> DemoStep:
    """Return the next answer of the model: a function of the conversation only."""
    task = read_task(messages)
    if scripted := _scripted(task):
        return scripted
    if task.late:
        lines = (f"- {c.label} {'failed' if c.failed else 'is done'}: {_one_line(c.output or '')}" for c in task.late)
        return _text("\n".join(("**The rest has come in.** I had answered without it:", *lines)))
    wish = _wish_of(task.prompt, during=task.is_steered)
    if wish.kind in ("chat", "enough"):
        wish = _wish_of(task.prompt)
    # If the task is a message that arrived after an answer, it is also the first of the injected ones.
    injected = [(line, _wish_of(without_name(line), during=True)) for line in task.injected[int(task.is_steered) :]]
    return _calling(task, wish, injected, tool_names, _last_number(messages)) or _answering(task, wish, injected)


def _calling(
    task: DemoTask, wish: Wish, injected: Sequence[Injected], tool_names: Collection[str], last_number: int
) -> DemoStep | None:
    """Return the missing calls of the injected messages, then those of the task."""
    calls, lead = [call for _, each in injected for call in _missing_calls(task, each, tool_names)], ""
    if calls and calls[0][0] == "search_files":
        lead = f"You also mention “{calls[0][1]['query']}”: I look for that first."
    elif not calls and not _is_enough(injected):
        calls = _missing_calls(task, wish, tool_names)
        lead = "I'll look at the files." if wish.kind == "review" and not task.calls else ""
    if not calls:
        return None
    blocks: list[ContentBlock] = [TextBlock(text=lead)] if lead else []
    different = [call for at, call in enumerate(calls) if call not in calls[:at]]
    numbered = enumerate(different, last_number + 1)
    blocks += [ToolCallBlock(id=f"demo-{number}", name=name, input=given) for number, (name, given) in numbered]
    return DemoStep(blocks, finish_reason="tool_use")


def _answering(task: DemoTask, wish: Wish, injected: Sequence[Injected]) -> DemoStep:
    if task.running and not _is_enough(injected):
        running = " and ".join(call.label for call in task.running)
        return _text(_joined(f"I am still waiting for {running}; then I continue.", _notes(task, injected)))
    wait_s = float(wish.about) if wish.kind == "wait" and not injected else 0.0
    pause = f"I am taking my time: {wait_s:g} seconds, as you asked." if wait_s else ""
    found = [_report(task, each) for _, each in injected if each.kind in ("search", "read")]
    failures = [f"- {call.label}: {call.output}" for call in task.calls if call.failed]
    failed = "\n".join(("**What did not work**", *failures)) if failures else ""
    return _text(_joined(pause, *found, _report(task, wish), failed, _notes(task, injected)), wait_s)


def _is_enough(injected: Sequence[Injected]) -> bool:
    return any(wish.kind == "enough" for _, wish in injected)


def _wish_of(text: str, *, during: bool = False) -> Wish:
    """Return the wish of a prompt, or with `during` of a message to a running task."""
    text = text.replace("\u2019", "'")
    wish = Wish("chat")
    if during and _ENOUGH.search(text):
        wish = Wish("enough")
    elif into := _WRITE.search(text):
        said = into[4] or ("" if _THAT.fullmatch(into[2]) else into[2])
        written = Wish("write", into[3], said.strip(" \t:,`'\"“”"), append=into[1].lower() in ("add", "append"))
        wish = written if said or not during else wish  # during a task there is no answer to save yet
    elif path := re.search(_PATH, text, _I):
        wish = Wish("read", path[0])
    elif (found := _SEARCH.search(text) or (_ALSO.search(text) if during else None)) and (query := _query(found[1])):
        wish = Wish("search", query)
    elif not during:
        wish = _general_wish(text)
    return wish


def _general_wish(text: str) -> Wish:
    if _TODO.search(text):
        return Wish("todo", text.partition(":")[2].strip())
    if wait := _WAIT.search(text):
        return Wish("wait", str(min(int(wait[1]) * (60 if wait[2].lower().startswith("m") else 1), _MAX_WAIT_S)))
    if _REVIEW.search(text):
        return Wish("review")
    return Wish("about" if _ABOUT.search(text) else "chat")


def _query(rest: str) -> str:
    query, previous = re.split(r"[,.;:!?\n]", rest[:300])[0].strip(), ""
    while query != previous:
        query, previous = _NO_QUERY.sub("", query).strip(" '\"“”`()"), query
    return query[:60]


def _missing_calls(task: DemoTask, wish: Wish, tool_names: Collection[str]) -> list[Call]:
    """Return the missing calls of the first incomplete round; none while its tools are running."""
    for calls in _rounds(task, wish):
        known = [(call, task.call(*call)) for call in calls if call[0] in tool_names]
        if any(made is not None and made.output is None for _, made in known):
            return []
        if missing := [call for call, made in known if made is None]:
            return missing
    return []


def _rounds(task: DemoTask, wish: Wish) -> Iterator[list[Call]]:
    match wish.kind:
        case "review":
            yield [("list_files", {}), _progress(["List the files", "Read the files", "Write up what I found"], 0)]
            files = _listed(task)
            items = ["List the files", *(f"Read {path}" for path in files), "Write up what I found"]
            for at, path in enumerate(files, 1):
                yield [_read(path), _progress(items, at)]
            yield [_progress(items, len(items))] if files else []
        case "search":
            yield [_search(wish.about)]
            if not _hits(task, wish.about):
                yield [_search(_longest_word(wish.about))]
        case "read":
            yield [_read(wish.about)]
        case "write" if text := _text_to_write(task, wish):
            yield [("write_file", {"path": wish.about, "content": text + "\n", "append": wish.append})]
        case "todo":
            items = [text for part in re.split(r"[\n,;]", wish.about) if (text := part.strip("-*. "))]
            yield [_progress(items, -1) if items else ("todo", {"action": "show"})]


def _progress(items: Sequence[str], at: int) -> Call:
    states = ["done" if n < at else "in_progress" if n == at else "pending" for n in range(len(items))]
    return "todo", {"items": [{"text": text, "status": state} for text, state in zip(items, states, strict=True)]}


def _read(path: str) -> Call:
    return "read_file", {"path": path}


def _search(query: str) -> Call:
    return "search_files", {"query": query}


def _longest_word(query: str) -> str:
    return max(re.findall(r"\w+", query), key=len, default=query)


def _listed(task: DemoTask) -> list[str]:
    lines = (task.output("list_files", {}) or "").splitlines()
    return [found[1] for line in lines if (found := _LISTED.fullmatch(line))][:_MAX_FILES]


def _hits(task: DemoTask, query: str) -> list[str]:
    lines = (task.output(*_search(query)) or "").splitlines()
    return [line for line in lines if re.match(r".+?:\d+: ", line)]


def _text_to_write(task: DemoTask, wish: Wish) -> str:
    return wish.text or (task.previous.answer if task.previous else "")


def _report(task: DemoTask, wish: Wish) -> str:
    """Return the result of a wish in Markdown; blank if its call failed."""
    report = ""
    match wish.kind:
        case "review":
            files = {path: text for path in _listed(task) if (text := task.output(*_read(path))) is not None}
            unread = ", ".join(f"`{path}`" for path in _listed(task) if path not in files)
            report = report_files(files) if files else "I have read no files of the workspace."
            outlook = "Next I could save this: “save it into `review.md`”." if files else ""
            report = _joined(report, f"Not read: {unread}." if unread else "", outlook)
        case "search":
            word = next((word for word in (wish.about, _longest_word(wish.about)) if _hits(task, word)), "")
            hits = _hits(task, word)
            shown = "\n".join((f"**“{word}”**: {counted(len(hits), 'line')}", *(f"- {hit}" for hit in hits[:10])))
            report = shown if word else f"**“{wish.about}”**: I found nothing in the files."
        case "read" if (text := task.output(*_read(wish.about))) is not None:
            lines = text.replace("```", "'''").splitlines()
            body = "\n".join(lines[:_SHOWN_LINES])
            report = f"`{wish.about}`, {counted(len(lines), 'line')}:\n```\n{body}\n```"
        case "write" if not _text_to_write(task, wish):
            report = f"What shall I write into `{wish.about}`? Put it after a colon: “write into {wish.about}: …”."
        case "write" | "todo":
            outputs = [call.output for call in task.calls if not call.failed and call.output]
            report = f"**{'Saved' if wish.kind == 'write' else 'The to-do list'}**\n{outputs[-1]}" if outputs else ""
        case "wait":
            report = "That was it: I am done waiting."
        case "about":
            report = _HELP
        case "chat":
            report = f"You wrote: “{_one_line(task.prompt)}”. I am only the offline demo and cannot say much. "
            report += "I can look through your files: “look through the notes and suggest improvements”, or “help”."
    calls = next(_rounds(task, wish), [])
    if wish.kind in ("search", "read", "write", "todo") and calls and task.call(*calls[0]) is None:
        report = f"I could not {wish.kind} “{wish.about}”: in this turn I have no tool for it."
    return report


def _notes(task: DemoTask, injected: Sequence[Injected]) -> str:
    """Return the result of each message that arrived during the task."""
    lines = []
    for line, wish in injected:
        done = {"search": "I searched for it", "read": "I read it", "write": "I wrote it", "enough": "I stopped there"}
        said = done.get(wish.kind, "I have read it. It asks for nothing that a demo can do")
        calls = next(_rounds(task, wish), [])
        if calls and ((made := task.call(*calls[0])) is None or made.failed):
            said = "I could not do that"
        lines.append(f"- “{_one_line(without_id(line))}”{', at once' if is_urgent(line) else ''}: {said}.")
    return "\n".join(("**While I was working you also wrote:**", *lines)) if lines else ""


def _scripted(task: DemoTask) -> DemoStep | None:
    """Return an answer with the ending that the prompt requests, to demonstrate its handling."""
    if not task.injected and task.prompt == "demo: refuse":
        return DemoStep([], finish_reason="refusal", refusal="The demo refuses because you asked for it.")
    if not task.injected and task.prompt == "demo: cut":
        words = _LONG_ANSWER.split()[sum(len(text.split()) for text in task.said) :]
        is_cut = len(words) > _MAX_WORDS
        text = " ".join(words[:_MAX_WORDS]) + (" " if is_cut else "")
        return DemoStep([TextBlock(text=text)], finish_reason="max_tokens" if is_cut else "end_turn")
    return None


def _last_number(messages: Sequence[Message]) -> int:
    """Return the highest number of a call; a shortened conversation does not begin with the first one."""
    blocks = (block for message in messages if isinstance(message.content, list) for block in message.content)
    found = (re.fullmatch(r"demo-(\d+)", block.id) for block in blocks if isinstance(block, ToolCallBlock))
    return max((int(number[1]) for number in found if number), default=0)


def _text(text: str, wait_s: float = 0.0) -> DemoStep:
    return DemoStep([TextBlock(text=text)], wait_s)


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"
