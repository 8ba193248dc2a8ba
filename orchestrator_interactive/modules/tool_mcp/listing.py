"""Read and check the tools and prompts of a server. They are untrusted, and go into every request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Self

import structlog
from jsonschema import SchemaError
from jsonschema.validators import validator_for
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import METHOD_NOT_FOUND, JSONRPCResponse, Prompt, Tool
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from orchestrator_interactive.json_limits import nesting
from orchestrator_interactive.modules.tool_mcp.results import clean, one_line
from orchestrator_interactive.transcript.framing import without_frames
from orchestrator_interactive.transcript.rows import truncate_middle

if TYPE_CHECKING:
    from collections.abc import Collection

    from mcp.client import Client

    from orchestrator_interactive.modules.tool_mcp.options import ServerOptions

log = structlog.get_logger(__name__)

_MOST_PAGES = 20
_LATEST_HANDSHAKE = "2025-11-25"
_MOST_PROMPTS = 50
_NAME_CHARS, _DIGEST_CHARS = 64, 16
_DESCRIPTION_CHARS, _TEXT_CHARS = 2_000, 1_000
_SCHEMA_CHARS, _SCHEMA_LEVELS = 30_000, 30
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_-]")
# What Anthropic's API accepts as a name of an argument; it refuses every request with another one.
_ARGUMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMBINED = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of a server: `name` is its own, `full_name` that for the model."""

    name: str
    full_name: str
    description: str
    schema: dict[str, Any]
    is_read_only: bool
    is_destructive: bool | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools and prompts of a server; the digest is that of all its tools as it sent them."""

    tools: tuple[Tool, ...]
    prompts: tuple[Prompt, ...]
    has_resources: bool

    @property
    def digest(self) -> str:
        each = [tool.model_dump(mode="json", exclude_none=True) for tool in self.tools]
        text = json.dumps(sorted(each, key=lambda tool: str(tool["name"])), sort_keys=True)
        return sha256(text.encode(errors="replace")).hexdigest()[:_DIGEST_CHARS]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "tools": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in self.tools],
            "prompts": [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in self.prompts],
            "has_resources": self.has_resources,
        }

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Listing:
        """Restore a listing."""
        return cls(
            tuple(map(Tool.model_validate, stored["tools"])),
            tuple(map(Prompt.model_validate, stored["prompts"])),
            bool(stored["has_resources"]),
        )


async def listing_of(client: Client) -> Listing:
    """Ask a server for its tools and prompts."""
    can = client.server_capabilities
    tools, prompts = list[Tool](), list[Prompt]()
    cursor: str | None = None
    for _ in range(_MOST_PAGES if can.tools is not None else 0):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if (cursor := page.next_cursor) is None:
            break
    if can.prompts is not None:
        try:
            prompts = (await client.list_prompts()).prompts
        except MCPError as e:
            if e.code != METHOD_NOT_FOUND:
                raise
    return Listing(tuple(tools), tuple(prompts[:_MOST_PROMPTS]), can.resources is not None)


class RepairedMessages:
    """The messages of a server, without tools that are not valid: the SDK would refuse the whole list."""

    def __init__(self, server: str, messages: Any) -> None:
        self._server = server
        self._messages = messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

    async def __aenter__(self) -> Self:
        await self._messages.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._messages.__aexit__(*error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._repaired(await self._messages.__anext__())

    async def receive(self) -> Any:
        return self._repaired(await self._messages.receive())

    def _repaired(self, found: Any) -> Any:
        message = found.message if isinstance(found, SessionMessage) else None
        if isinstance(message, JSONRPCResponse) and isinstance(tools := message.result.get("tools"), list):
            message.result["tools"] = [each for each in tools if self._is_valid(each)]
        return found

    def _is_valid(self, tool: Any) -> bool:
        """Return whether a tool is valid; a missing type of its schema is added."""
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and isinstance(schema := tool.get("inputSchema"), dict):
            schema.setdefault("type", "object")
            try:
                validate_server_result("tools/list", _LATEST_HANDSHAKE, {"tools": [tool]})
            except ValidationError:
                pass
            else:
                return True
        shown = one_line(str(name), _NAME_CHARS)
        log.warning("mcp.tool_left_out", server=self._server, tool=shown, why="it is not valid")
        return False


# The digests of the tools that sessions of this process have mounted, by server and options.
_known_digests: dict[tuple[str, str], str] = {}


def offered_tools(
    server: str, options: ServerOptions, listing: Listing, most: int, taken: Collection[str]
) -> list[OfferedTool]:
    """Return the usable tools of a server; `taken` are the names of other tools. Log omitted tools, and changes."""
    digest, key = listing.digest, (server, options.model_dump_json())
    if (before := _known_digests.get(key, digest)) != digest:
        log.warning("mcp.tools_changed", server=server, digest=digest, before=before)
    _known_digests[key] = digest
    if options.digest and options.digest != digest:
        what = f"check the tools of the server, and set its `digest` to {digest}"
        log.warning("mcp.tools_refused", server=server, digest=digest, what_to_do=what)
        return []
    log.info("mcp.tools_listed", server=server, digest=digest, tools=len(listing.tools))
    found: dict[str, OfferedTool] = {}
    for tool in listing.tools:
        if options.tools is not None and not any(fnmatchcase(tool.name, each) for each in options.tools):
            continue
        name, schema = _full_name(server, tool.name), _usable(tool.input_schema)
        problem = (
            "there are more tools than `max_tools`" * (len(found) >= most)
            or "another tool has this name" * (name in found or name in taken)
            or "its schema cannot be used" * (schema is None)
        )
        if problem or schema is None:
            log.warning("mcp.tool_left_out", server=server, tool=one_line(tool.name, _NAME_CHARS), why=problem)
            continue
        hints, does = tool.annotations, _described(tool.description or tool.title or "")
        found[name] = OfferedTool(
            tool.name,
            name,
            f"[A tool of the MCP server '{server}', which describes it so:] {does}",
            schema,
            is_read_only=hints is not None and hints.read_only_hint is True,
            is_destructive=None if hints is None else hints.destructive_hint,
        )
    return list(found.values())


def _full_name(server: str, tool: str) -> str:
    """Return `server__tool`; a name that has to be changed gets a digest of the original, so that names differ."""
    plain = _NOT_OF_NAMES.sub("_", tool)
    name = f"{server}__{plain}"
    if plain == tool and tool and len(name) <= _NAME_CHARS:
        return name
    mark = sha256(tool.encode(errors="replace")).hexdigest()[:8]
    return f"{name[: _NAME_CHARS - 9]}_{mark}"


def _described(text: str) -> str:
    return truncate_middle(without_frames(clean(text[:100_000])), _DESCRIPTION_CHARS)


def _usable(schema: Any) -> dict[str, Any] | None:
    """Return a schema that providers accept; `None`: it cannot be repaired."""
    if not isinstance(schema, dict) or nesting(schema, _SCHEMA_LEVELS) > _SCHEMA_LEVELS:
        return None
    # Providers refuse combined schemas at the top; the server checks the arguments itself.
    kept = {key: _cleaned(value) for key, value in schema.items() if key not in (*_COMBINED, "$schema", "title")}
    kept.setdefault("type", "object")
    properties = kept.setdefault("properties", {})
    if kept["type"] != "object" or not isinstance(properties, dict) or not all(map(_ARGUMENT.fullmatch, properties)):
        return None
    try:
        is_small = len(json.dumps(kept)) <= _SCHEMA_CHARS
        validator_for(schema).check_schema(kept)
    except (SchemaError, TypeError, ValueError):
        return None
    return kept if is_small and not _has_foreign_reference(kept) else None


def _cleaned(value: Any) -> Any:
    match value:
        case dict():
            return {clean(str(key)): _cleaned(each) for key, each in value.items()}
        case list():
            return [_cleaned(each) for each in value]
        case str():
            return truncate_middle(clean(value), _TEXT_CHARS)
    return value


def _has_foreign_reference(value: Any) -> bool:
    """Return whether a part refers to something outside of the schema."""
    match value:
        case dict():
            refers = (value.get(key) for key in _REFERENCES)
            if any(isinstance(each, str) and not each.startswith("#") for each in refers):
                return True
            return any(map(_has_foreign_reference, value.values()))
        case list():
            return any(map(_has_foreign_reference, value))
    return False
