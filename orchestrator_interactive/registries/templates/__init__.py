"""Templates of agents' instructions."""

from __future__ import annotations

from orchestrator_interactive.registries.templates.errors import (
    BrokenTemplate,
    ForbiddenTemplate,
    TemplateError,
    TemplateTooLarge,
    UndefinedVariable,
    UnknownTemplate,
)
from orchestrator_interactive.registries.templates.template_manager import TemplateManager

__all__ = [
    "BrokenTemplate",
    "ForbiddenTemplate",
    "TemplateError",
    "TemplateManager",
    "TemplateTooLarge",
    "UndefinedVariable",
    "UnknownTemplate",
]
