"""Errors of the registries; each message is a sentence with the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class RegistryError(Exception):
    """Base class of the registries' errors."""


class AlreadyRegistered(RegistryError):  # noqa: N818 - a fact about the registry
    """The name is taken."""


class NotRegistered(RegistryError, LookupError):  # noqa: N818
    """The name is unknown."""


def not_registered(kind: str, name: str, there: Iterable[str]) -> NotRegistered:
    known = ", ".join(sorted(there)) or "none"
    return NotRegistered(f"There is no {kind} '{name}'. Registered: {known}.")
