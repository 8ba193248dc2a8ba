"""Compose the demo's answers in Markdown from tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.modules.provider_demo import intents
from orchestrator_interactive.modules.provider_demo.reports import (
    counted,
    excerpt,
    failures,
    named,
    review,
    search_results,
    sentence,
)
from orchestrator_interactive.modules.provider_demo.subject import hits, longest_word, search_call

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from orchestrator_interactive.modules.provider_demo.conversation import Task
    from orchestrator_interactive.modules.provider_demo.rows import DemoToolCall, InjectedText
    from orchestrator_interactive.modules.provider_demo.subject import DemoSubject

_ABOUT_ME = (
    "I am the **offline demo** of this agent: I use word rules, not a language model. The tools I use, "
    "the files I read and the way you can steer and stop me are real.\n\n"
    "Try one of these:\n"
    "- “look through the notes and suggest improvements”\n"
    "- “search for launch”, “what's in `roadmap.md`?”\n"
    "- “todo: buy cake, call the printers”\n"
    "- “save it into `review.md`”\n"
    "- “take 30 seconds”, and write on while I am busy: “also check the budget”, or “that's enough”; what begins with "
    "“!” I read at once\n"
    "- “my name is …”, and later “what's my name?”"
)


def answer(subject: DemoSubject, tool_names: Collection[str]) -> str:
    """Compose the final text of a task: searches, the answer, failures, and replies to messages."""
    parts = [
        *(search_results(subject, query) for query in subject.queries),
        _to_the_prompt(subject, tool_names),
        failures(subject),
        _in_between(subject),
        _outlook(subject),
    ]
    return _joined(parts)


def while_waiting(subject: DemoSubject) -> str:
    """Compose the text while tools are still running: which ones, and replies to messages. See LEADS."""
    awaited = " and ".join(named(use) for use in subject.task.pending)
    queries = dict.fromkeys(
        requested.query for _, requested in subject.requests if isinstance(requested, intents.Search)
    )
    found = [search_results(subject, query) for query in queries if hits(subject.task, query)]
    return _joined([f"I am still waiting for {awaited}; then I go on.", *found, _in_between(subject)])


def afterwards(uses: Sequence[DemoToolCall]) -> str:
    """Compose the text about results that arrived after the answer."""
    lines = [f"- {named(use)} {'failed' if use.failed else 'is done'}: {_short(use.output)}" for use in uses]
    return "\n".join(("**The rest has come in.** I had answered without it:", *lines))


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def _to_the_prompt(subject: DemoSubject, tool_names: Collection[str]) -> str:
    task = subject.task
    text = ""
    match subject.intent:
        case intents.Review():
            text = review(subject, may_look="list_files" in tool_names)
        case intents.Read(paths):
            text = "\n\n".join(part for path in paths if (part := excerpt(subject, path)))
        case intents.Write() as write:
            text = _written(task, write)
        case intents.TodoIntent() as todo:
            text = _todo(task, todo)
        case intents.Search():
            pass  # its results lead the answer
        case other:
            text = _in_words(subject, other)
    return text


def _in_words(subject: DemoSubject, intent: intents.Intent) -> str:
    match intent:
        case intents.Introduce():
            return _ABOUT_ME
        case intents.Meet(name):
            return f"Nice to meet you, **{name}**. I keep that in mind for this conversation."
        case intents.AskName():
            known = _known_name(subject.task)
            return f"Your name is **{known}**; you told me." if known else "You have not told me. Write “my name is …”."
        case intents.Wait():
            return "That was it: I am done waiting. Anything you wrote in the meantime has reached me."
        case intents.DemoAnswer():
            return "All right, I stop here."
        case _:
            return _chat(subject)


def _written(task: Task, write: intents.Write) -> str:
    done = [use for use in task.used if use.name == "write_file" and use.input.get("path") == write.path]
    if done and done[-1].is_pending:
        return f"`{write.path}` is still being written."
    if done:
        return "" if done[-1].failed else f"**Saved.** {sentence(done[-1].output)}"
    if not (write.content or task.last_answer):
        return f"What shall I write into `{write.path}`? Put the text after a colon: “write into {write.path}: …”."
    return f"I could not write `{write.path}`: in this turn I have no tool for it."


def _todo(task: Task, todo: intents.TodoIntent) -> str:
    shown = [use for use in task.used if use.name == "todo" and use.succeeded]
    if shown:
        return f"**The to-do list**\n{shown[-1].output}"
    if any(use.name == "todo" for use in task.used):
        return ""
    own = "\n".join(f"- {item}" for item in todo.items)
    return f"I have no to-do list to keep in this turn.{f' It would be:{chr(10)}{own}' if own else ''}"


def _chat(subject: DemoSubject) -> str:
    texts = subject.task.user_texts
    name = _known_name(subject.task)
    parts = [f"{f'{name}, you' if name else 'You'} wrote: “{_short(subject.task.prompt)}”."]
    if len(texts) > 1:
        parts.append(f"It is message {len(texts)} from you here; before it came “{_short(texts[-2])}”.")
    parts.append(
        "I am only the offline demo, so I cannot say much about that. I can look through your files: try “look through "
        "the notes and suggest improvements”, or “help” for more."
    )
    return " ".join(parts)


def _known_name(task: Task) -> str | None:
    wanted = (intents.intent_of(text) for text in reversed(task.user_texts))
    return next((intent.name for intent in wanted if isinstance(intent, intents.Meet)), None)


def _in_between(subject: DemoSubject) -> str:
    if not subject.requests:
        return ""
    lines = [
        f"- “{_one_line(wrote.line)}”{', at once' if wrote.is_urgent else ''}: {_done_about(subject, wrote, requested)}"
        for wrote, requested in subject.requests
    ]
    return "\n".join(("**While I was working you also wrote:**", *lines))


def _done_about(subject: DemoSubject, wrote: InjectedText, requested: intents.Intent) -> str:
    if subject.is_steered and wrote is subject.requests[0][0] and not isinstance(requested, intents.Search):
        return "that is what this answers."
    match requested:
        case intents.Search(query):
            return _about_search(subject.task, query)
        case intents.Read() | intents.Write():
            return _about_files(subject, requested)
        case intents.DemoAnswer():
            return "I stopped there and answered with what I had."
        case _:
            return "I have read it. It asks for nothing that a demo can do, so I only take note of it."


def _about_files(subject: DemoSubject, requested: intents.Read | intents.Write) -> str:
    if isinstance(requested, intents.Write):
        done = any(use.name == "write_file" and use.succeeded for use in subject.task.used)
        return f"I wrote `{requested.path}`." if done else "I could not write it."
    if any(use.input.get("path") in requested.paths for use in subject.task.pending):
        return "I am reading it."
    if all(subject.text_of(path) is None for path in requested.paths):
        return "I could not read it."
    return "I read it:\n" + "\n".join(f"  {_indented(excerpt(subject, path))}" for path in requested.paths)


def _about_search(task: Task, query: str) -> str:
    if found := hits(task, query) or hits(task, longest_word(query)):
        return f"I searched for it, and found {counted(len(found), 'line')}; see above."
    result = task.result(*search_call(query))
    if result is not None and result.is_pending:
        return "I am searching for it."
    if result is None or result.failed:
        return "I could not search for it."
    return "I searched for it, and found nothing."


def _outlook(subject: DemoSubject) -> str:
    match subject.intent:
        case intents.Review() if files := subject.files():
            return f"Next I could save this (“save it into `review.md`”), or go deeper: “what's in `{files[0].path}`?”"
        case intents.Search() | intents.Read():
            return "Next I could look through everything: “look through the notes and suggest improvements”."
        case _:
            return ""


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str, most: int = 200) -> str:
    line = _one_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"
