"""Load the HTML template and its filters."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from orchestrator_interactive.interactions.export.text import day_and_time, local, time_of_day, visible

if TYPE_CHECKING:
    from jinja2 import Template

_MAX_CHARS = 20_000
# Image types that a browser only displays; SVG could contain scripts.
_IMAGES = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif", "webp"))
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
_MARKDOWN.validateLink = lambda url: url.startswith(("https://", "http://", "mailto:"))  # type: ignore[method-assign]


@cache
def page() -> Template:
    """Return the template; all values are escaped, with hidden characters made visible."""
    environment = Environment(
        autoescape=True,
        enable_async=True,
        finalize=_visible,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.globals.update(
        max_chars=_MAX_CHARS,
        day_and_time=day_and_time,
        is_shown=lambda url: url.startswith(_IMAGES),
        markdown=lambda text: Markup(_MARKDOWN.render(visible(text))),  # noqa: S704 - the renderer escapes HTML
        iso=lambda ts: moment.isoformat(timespec="seconds") if (moment := local(ts)) else "",
        time_of_day=time_of_day,
        zone=_zone,
    )
    source = files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def _visible(value: Any) -> Any:
    # Escaped values have already been processed.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _zone() -> str:
    """Return the name and offset of the local time zone."""
    now = datetime.now(UTC).astimezone()
    return f"{now:%Z} (UTC{now:%z})" if f"{now:%Z}" != "UTC" else "UTC"
