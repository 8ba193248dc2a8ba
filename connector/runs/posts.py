"""The posts of a run, as the outbox stores them: what each shows, and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from connector import texts
from connector.events import FEEDBACK
from connector.formatting.content import button, plain, section
from connector.formatting.inline import escape, whole
from connector.formatting.long_parts import without_long_parts
from connector.formatting.markdown import markdown_to_slack
from connector.formatting.native import MOST_CHARS, fenced, native_markdown
from connector.formatting.splitting import PIECE_CHARS, pieces
from connector.protocols import SharedFile  # noqa: TC001 - of a field that pydantic reads
from connector.slack_api import uploads
from connector.slack_api.streams import Streamed  # noqa: TC001 - of a field that pydantic reads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.formatting.content import Content
    from connector.slack_api.client import AnswerKey

# A longer answer becomes a file: it would fill several screens, and at about one message a second, other people's posts
# would appear between its parts.
_MOST_MESSAGES = 5
# A longer text would exceed that limit; skip its conversion, whose time also grows with the number of lines.
_MOST_CHARS, _MOST_LINES = _MOST_MESSAGES * PIECE_CHARS, 1000


@dataclass(frozen=True, slots=True)
class Post:
    """One text of a run, as one or more Slack messages.

    Args:
        part: key of the post within its run.
        texts: the messages, in Slack's markup.
        by_agent: whether it is posted under the agent's persona rather than the service's own name.
        blocks: what Slack shows of the last message instead of its text; none: the text.
        file: text to share as a file before the messages; blank: none. `kind` as in `LongPart`.
        number: its position among the posts of the run.
        in_doubt: whether an earlier owner may have posted it.
        is_rated: whether people can rate it by buttons below its last message.
        native: Markdown for one message with a `markdown` block, where it is shown better; `texts` if Slack refuses it.
        streamed: the messages that show the beginning of `native`, and that are completed in place of a post.
        shared: files that are uploaded, for one message; `comment` is the text above them.
        canvas: id of the canvas that has the text of the file; blank: none.
    """

    part: str
    texts: tuple[str, ...]
    by_agent: bool = False
    blocks: tuple[dict[str, Any], ...] = ()
    file: str = ""
    kind: str = uploads.ANSWER
    number: int = 0
    in_doubt: bool = False
    is_rated: bool = False
    native: str = ""
    streamed: tuple[Streamed, ...] = ()
    shared: tuple[SharedFile, ...] = ()
    comment: str = ""
    canvas: str = ""

    def as_texts(self) -> list[tuple[str, str]]:
        """Return the messages, in Slack's markup, in place of all that it shows, with their keys within the post."""
        if self.shared:
            return [("refused", escape(texts.may_lack([each.name for each in self.shared])))]
        if self.native:  # one message, which is found by this key if it is posted
            return [("native", "\n\n".join(self.texts))]
        shown = [(str(number), text) for number, text in enumerate(self.texts)]
        if not self.file:
            return shown
        whole = [(f"file:{number}", text) for number, text in enumerate(self.file_texts())]
        return [*whole, *(shown if self.blocks else ())]

    def file_texts(self) -> list[str]:
        """Return the messages in place of the file."""
        return pieces(markdown_to_slack(self.file if self.kind == uploads.ANSWER else fenced(self.file)))


_POST = TypeAdapter(Post)


def stored_post(part: str, data: Mapping[str, Any]) -> Post:
    """Parse a post stored by an earlier owner; errors of another format are those in `UNREADABLE`."""
    required = {name: data[name] for name in ("texts", "by_agent", "number")}
    return _POST.validate_python({**data, **required, "part": part, "in_doubt": True})


def agent_post(part: str, markdown: str) -> tuple[Post, ...]:
    """Return a post by the agent, with a file if the text is long, then its long parts; none if the text is blank."""
    markdown, parts = without_long_parts(whole(markdown).strip("\n"))
    files = tuple(
        Post(f"{part}.{place}", (), by_agent=True, file=each.content, kind=each.kind)
        for place, each in enumerate(parts, 1)
    )
    if len(markdown) <= _MOST_CHARS and markdown.count("\n") < _MOST_LINES:
        text = markdown_to_slack(markdown)  # escaped characters become longer
        if len(text) <= _MOST_CHARS and len(texts := tuple(pieces(text))) <= _MOST_MESSAGES:
            native = native_markdown(markdown, only_rich=True)
            native = native if len(native) <= MOST_CHARS else ""
            return (Post(part, texts, by_agent=True, native=native), *files) if texts else ()
    if not markdown.strip():
        return ()
    return (Post(part, uploads.summary_of(markdown), by_agent=True, file=markdown), *files)


def service_post(part: str, sentence: str) -> tuple[Post, ...]:
    """Return a post by the service itself; none if the sentence is blank."""
    return (Post(part, (escape(sentence),)),) if sentence else ()


def question_post(part: str, markup: str, value: str, labels: Mapping[str, str]) -> Post:
    """Return a question with buttons by their action ids; a click carries the value."""
    buttons = [button(action, label, value) for action, label in labels.items()]
    return Post(part, (markup,), blocks=(section(markup), {"type": "actions", "elements": buttons}))


def request_post(part: str, content: Content, file: str) -> Post:
    """Return the message of a request, after a file with its details if they are long."""
    return Post(part, (content.text,), blocks=content.blocks, file=file)


def files_post(part: str, files: Sequence[SharedFile], comment: str) -> Post:
    """Return the message with uploaded files, below a comment in Markdown."""
    return Post(
        part, (), by_agent=True, shared=tuple(files), comment=next(iter(pieces(markdown_to_slack(comment))), "")
    )


def feedback_block(answer: AnswerKey) -> dict[str, Any]:
    """Return the buttons that rate an answer; a click carries its place in the log."""
    buttons = {
        name: {"text": plain(label), "value": f"{reward} {answer.instance} {answer.prompt_id} {answer.part}"}
        for name, label, reward in (("positive_button", "Good answer", 1), ("negative_button", "Bad answer", -1))
    }
    element = {"type": "feedback_buttons", "action_id": FEEDBACK, **buttons}
    return {"type": "context_actions", "elements": [element]}
