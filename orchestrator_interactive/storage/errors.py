"""Errors of the storage layer; each message is a sentence that says what to do."""

from __future__ import annotations


class TransactionError(Exception):
    """Base of errors that a caller raises inside a transaction; the storage layer does not translate them."""


class StoreError(Exception):
    """The store cannot be used."""


class StoreAway(StoreError):  # noqa: N818 - the name says the state of the store
    """The store cannot be reached at the moment; retry later."""


class StoreGone(StoreError):  # noqa: N818
    """The opened store no longer exists, or another file is in its place; it never comes back."""
