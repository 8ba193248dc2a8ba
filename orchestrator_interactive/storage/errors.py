"""Errors of the storage layer; each message states a remedy."""

from __future__ import annotations


class TransactionError(Exception):
    """Base of errors that a caller raises inside a transaction; the storage layer does not translate them."""


class StoreError(Exception):
    """The store cannot be used."""


class StoreUnavailable(StoreError):  # noqa: N818 - the name says the state of the store
    """The store cannot be reached at the moment; retry later."""


class StoreReplaced(StoreError):  # noqa: N818
    """The open store was removed or replaced by another file; it does not come back."""
