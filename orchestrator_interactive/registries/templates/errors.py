"""Errors of template rendering; each message is a sentence with the remedy."""

from __future__ import annotations


class TemplateError(ValueError):
    """The template cannot be rendered."""


class UnknownTemplate(TemplateError, LookupError):  # noqa: N818 - a fact about the folder
    """There is no template with this name."""


class BrokenTemplate(TemplateError):  # noqa: N818 - a fact about the template, as are those below
    """The template has a syntax error."""


class UndefinedVariable(TemplateError):  # noqa: N818
    """The template uses an undefined variable."""


class ForbiddenTemplate(TemplateError):  # noqa: N818
    """The template accesses something that the sandbox forbids."""


class TemplateTooLarge(TemplateError):  # noqa: N818
    """The template runs too long or produces too much text."""
