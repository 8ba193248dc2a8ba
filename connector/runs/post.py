"""A text on its way into a conversation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from connector.formatting.links import escape
from connector.runs.answers import messages_of, posts_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Post:
    """What a run says at once.

    Args:
        part: tells it from the other texts of its run.
        texts: the messages that it becomes.
        by_agent: under the agent's persona, rather than the service's own name.
        file: what comes before them as a file, in Markdown; blank: nothing does.
        number: its place in the order of the run's texts.
        in_doubt: a process that is dead may have posted it.
    """

    part: str
    texts: tuple[str, ...]
    by_agent: bool = False
    file: str = ""
    number: int = 0
    in_doubt: bool = False

    def written(self) -> dict[str, Any]:
        post = {"number": self.number, "texts": self.texts, "by_agent": self.by_agent}
        return {**post, "file": self.file} if self.file else post

    @classmethod
    def read(cls, part: str, data: Mapping[str, Any]) -> Self:
        """What was written.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it cannot be read.
        """
        texts, file = tuple(data["texts"]), data.get("file", "")
        return cls(part, texts, data["by_agent"], file, data["number"], in_doubt=True)

    async def without_file(self) -> Self:
        """The same as messages alone, where Slack does not take the file."""
        return replace(self, texts=await asyncio.to_thread(messages_of, self.file), file="")


def said(part: str, markdown: str) -> tuple[Post, ...]:
    """What an agent says; nothing where there is nothing to see."""
    texts, file = posts_of(markdown)
    return (Post(part, texts, by_agent=True, file=file),) if texts else ()


def noted(part: str, sentence: str) -> tuple[Post, ...]:
    """A sentence of the service's own, in plain words; nothing where it is blank."""
    return (Post(part, (escape(sentence),)),) if sentence else ()
