"""What a conversation's log can refuse; each message is a sentence that says what to do."""

from __future__ import annotations

from orchestrator_interactive.storage.errors import StoreError, TransactionError


class InteractionError(TransactionError):
    """The conversation's log cannot do this."""


class InvalidTransition(InteractionError):  # noqa: N818 - a fact about the conversation
    """A state cannot come at this point; `allowed` names those that can."""

    def __init__(self, message: str, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class ConversationFinished(InvalidTransition):
    """Nothing can be pushed to a finished conversation; fork or rewind it."""


class WriteConflict(InteractionError):  # noqa: N818
    """Somebody else has written to this conversation; look at it again before you write."""


class Fenced(WriteConflict):
    """Another owner has taken this conversation over; nothing was written, and nothing more will be."""


class NoSuchState(InteractionError, LookupError):  # noqa: N818
    """There is no state at this index."""


class NoSuchBranch(InteractionError, LookupError):  # noqa: N818
    """The conversation has no branch of this name."""


class BranchExists(InteractionError):  # noqa: N818
    """The conversation has a branch of this name already; choose another one."""


class BadBranchName(InteractionError):  # noqa: N818
    """A branch cannot be called so."""


class UnreadableState(InteractionError):  # noqa: N818
    """What is stored of a state cannot be read."""


class UnknownState(UnreadableState):
    """The state is of a type that nobody has defined here; import the module that defines it."""


class NewerState(UnreadableState):
    """The state was written by a newer version; update this installation."""


class DamagedLog(InteractionError, StoreError):  # noqa: N818
    """What is stored of a conversation's branches cannot be read; other conversations are not touched by that."""
