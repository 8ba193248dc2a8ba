"""What a registry refuses; each message is a sentence that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RegistryError(Exception):
    """The registry cannot do this."""


class AlreadyRegistered(RegistryError):  # noqa: N818 - a fact about the registry
    """The name is taken."""


class NotRegistered(RegistryError, LookupError):  # noqa: N818
    """There is nothing of this name."""


def unknown(kind: str, name: str, there: Iterable[str]) -> NotRegistered:
    known = ", ".join(sorted(there)) or "none"
    return NotRegistered(f"There is no {kind} '{name}'. Registered: {known}.")
