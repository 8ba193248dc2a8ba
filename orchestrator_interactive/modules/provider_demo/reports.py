"""Report files, searches and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.modules.provider_demo.findings import study
from orchestrator_interactive.modules.provider_demo.subject import Hit, hits, listed_files, longest_word, search_call
from orchestrator_interactive.modules.provider_demo.suggestions import suggestions

if TYPE_CHECKING:
    from orchestrator_interactive.modules.provider_demo.findings import FileFindings
    from orchestrator_interactive.modules.provider_demo.rows import DemoToolCall
    from orchestrator_interactive.modules.provider_demo.subject import DemoSubject

_MAX_HITS = 10
_EXCERPT_LINES = 15


def review(subject: DemoSubject, *, may_look: bool) -> str:
    """Report the findings in the files, with suggestions."""
    files = subject.files()
    if not files:
        return _nothing_read(subject, may_look=may_look)
    total = sum(file.lines for file in files)
    unread = [path for path in listed_files(subject.task) if path not in {file.path for file in files}]
    parts = [
        f"I have read **{counted(len(files), 'file')}**, {counted(total, 'line')} in all.",
        "**What is there**\n" + "\n".join(map(_file_line, files)),
    ]
    if unread:
        parts.append(f"Not read: {', '.join(f'`{path}`' for path in unread)}.")
    if advice := suggestions(files):
        parts.append("**What I suggest**\n" + "\n".join(f"{n}. {line}" for n, line in enumerate(advice, 1)))
    return "\n\n".join(parts)


def search_results(subject: DemoSubject, query: str) -> str:
    """Report a search in Markdown; empty if it failed, because `failures` reports that."""
    task = subject.task
    found, word = hits(task, query), query
    if not found:
        word = longest_word(query)
        found = hits(task, word)
    if found:
        also = f" (for “{query}” there is nothing)" if word != query else ""
        return "\n".join((f"**“{word}”**: {counted(len(found), 'line')}{also}", *_hit_lines(found)))
    result = task.result(*search_call(query))
    if result is None:
        return f"I could not search for “{query}”: in this turn I have no tool for it."
    if result.is_pending:
        return f"**“{query}”**: the search is still running."
    return "" if result.failed else f"**“{query}”**: I found nothing in the files."


def excerpt(subject: DemoSubject, path: str) -> str:
    """Describe a file and show its beginning."""
    text = subject.text_of(path)
    if text is None and any(use.input.get("path") == path for use in subject.task.pending):
        return f"`{path}` is still being read."
    if text is None:
        was_tried = any(use.input.get("path") == path for use in subject.failures)
        return "" if was_tried else f"I could not read `{path}`: in this turn I have no tool for it."
    lines = text.replace("```", "'''").splitlines()
    body = "\n".join(lines[:_EXCERPT_LINES])
    more = f"\n… and {counted(len(lines) - _EXCERPT_LINES, 'line')} more." if len(lines) > _EXCERPT_LINES else ""
    return f"{_file_line(study(path, text)).removeprefix('- ')}\n```\n{body}\n```{more}"


def failures(subject: DemoSubject) -> str:
    """List failed calls with the tools' messages."""
    if not subject.failures:
        return ""
    return "\n".join(("**What did not work**", *map(_failure_line, subject.failures)))


def named(use: DemoToolCall) -> str:
    """Name a tool call and its subject."""
    about = next((use.input[key] for key in ("path", "query") if isinstance(use.input.get(key), str)), "")
    return f"`{use.name}`{f' of `{about}`' if about else ''}"


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _nothing_read(subject: DemoSubject, *, may_look: bool) -> str:
    if not subject.has_used("list_files"):
        why = "I was asked to answer at once" if may_look else "in this turn I have no tool to look with"
        return f"I have not seen any files: {why}."
    if subject.failures:
        return "I could not look at the files."
    if files := listed_files(subject.task):
        return (
            f"I have seen {counted(len(files), 'file')} and read none yet: {', '.join(f'`{path}`' for path in files)}."
        )
    return "The workspace has no text files. Put some notes into it, and I will look through them."


def _file_line(file: FileFindings) -> str:
    facts = [counted(file.lines, "line")]
    facts += [counted(file.headings, "heading")] if file.headings else []
    if file.open_items:
        nobody = len(file.without_owner)
        facts.append(
            f"**{counted(len(file.open_items), 'open item')}**" + (f" ({nobody} without an owner)" if nobody else "")
        )
    facts += [f"{file.done} done"] if file.done else []
    facts += [f"{counted(len(file.gaps), 'row')} without an owner"] if file.gaps else []
    facts += [counted(len(file.questions), "open question")] if file.questions else []
    facts += [f"{counted(len(file.marks), 'TODO/FIXME/TBD mark')}"] if file.marks else []
    return f"- `{file.path}`: {', '.join(facts)}"


def _hit_lines(found: list[Hit]) -> list[str]:
    shown = [f"- `{hit.path}:{hit.line}` {hit.text.removeprefix('- ')}" for hit in found[:_MAX_HITS]]
    return [*shown, f"- … and {len(found) - _MAX_HITS} more"] if len(found) > _MAX_HITS else shown


def _failure_line(use: DemoToolCall) -> str:
    return f"- {named(use)}: {sentence(use.output)}"
