"""A post of a run, as the outbox stores it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from connector.formatting.inline import escape
from connector.runs.answers import messages_of, posts_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Post:
    """One text of a run, as one or more Slack messages.

    Args:
        part: key of the post within its run.
        texts: the messages, in Slack's markup.
        by_agent: whether it is posted under the agent's persona rather than the service's own name.
        file: Markdown to share as a file before the messages; blank: none.
        number: its position among the posts of the run.
        in_doubt: whether an earlier owner may have posted it.
    """

    part: str
    texts: tuple[str, ...]
    by_agent: bool = False
    file: str = ""
    number: int = 0
    in_doubt: bool = False

    def to_dict(self) -> dict[str, Any]:
        post = {"number": self.number, "texts": self.texts, "by_agent": self.by_agent}
        return {**post, "file": self.file} if self.file else post

    @classmethod
    def from_dict(cls, part: str, data: Mapping[str, Any]) -> Self:
        """Parse stored data.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: the data has another format.
        """
        texts, file = tuple(data["texts"]), data.get("file", "")
        return cls(part, texts, data["by_agent"], file, data["number"], in_doubt=True)

    async def without_file(self) -> Self:
        """Return the post with its file converted to messages, for when Slack rejects the file."""
        return replace(self, texts=await asyncio.to_thread(messages_of, self.file), file="")


def agent_post(part: str, markdown: str) -> tuple[Post, ...]:
    """Return a post by the agent; none if the text is blank."""
    texts, file = posts_of(markdown)
    return (Post(part, texts, by_agent=True, file=file),) if texts else ()


def service_post(part: str, sentence: str) -> tuple[Post, ...]:
    """Return a post by the service itself; none if the sentence is blank."""
    return (Post(part, (escape(sentence),)),) if sentence else ()
