"""Why a template gives no text; each message is a sentence that says what to do."""

from __future__ import annotations


class TemplateError(ValueError):
    """The template gives no text."""


class UnknownTemplate(TemplateError, LookupError):  # noqa: N818 - a fact about the folder
    """There is no template of this name."""


class BrokenTemplate(TemplateError):  # noqa: N818 - a fact about the template, as are those below
    """The template is not written as a template is."""


class UndefinedVariable(TemplateError):  # noqa: N818
    """The template asks for something that it was not given."""


class ForbiddenTemplate(TemplateError):  # noqa: N818
    """The template reaches for what is none of its business."""


class TemplateTooLarge(TemplateError):  # noqa: N818
    """The template does not come to an end, or makes too much text."""
