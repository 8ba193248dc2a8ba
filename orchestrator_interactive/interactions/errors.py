"""Errors of a conversation log; each message names the remedy."""

from __future__ import annotations

from orchestrator_interactive.storage.errors import StoreError, TransactionError


class InteractionError(TransactionError):
    """Base class: the conversation log rejects an operation."""


class InvalidTransition(InteractionError):  # noqa: N818 - a fact about the conversation
    """A state is not allowed at this point; `allowed` names the states that are."""

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class ConversationFinished(InvalidTransition):
    """A finished conversation accepts no states; fork or rewind it."""


class WriteConflict(InteractionError):  # noqa: N818
    """Another writer changed this conversation; read it again before writing."""


class Fenced(WriteConflict):
    """Another owner has taken over this conversation; this writer can no longer write."""


class NoSuchState(InteractionError, LookupError):  # noqa: N818
    """There is no state at this index."""


class NoSuchBranch(InteractionError, LookupError):  # noqa: N818
    """The conversation has no branch of this name."""


class BranchExists(InteractionError):  # noqa: N818
    """The conversation already has a branch of this name."""


class BadBranchName(InteractionError):  # noqa: N818
    """The branch name is invalid."""


class UnreadableState(InteractionError):  # noqa: N818
    """The stored data of a state cannot be decoded."""


class UnknownState(UnreadableState):
    """The state's type is not defined in this process; import its module."""


class NewerState(UnreadableState):
    """A newer version wrote the state; update this installation."""


class DamagedLog(InteractionError, StoreError):  # noqa: N818
    """The stored branches of a conversation are unreadable; other conversations are unaffected."""
