"""A server made with the SDK: over stdio, or `http PORT`. It appends its process id to the file in `STARTS`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("honest")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def environment() -> str:
    """Return the names and values of the environment."""
    return "\n".join(f"{name}={value}" for name, value in sorted(os.environ.items()))


@server.tool()
async def slow(context: Context, marker: str) -> str:
    """Report progress, and wait for ever. The file MARKER says how it ended."""
    await context.report_progress(1, 3, "one third")
    try:
        await asyncio.Event().wait()
    except BaseException:
        Path(marker).write_text("cancelled")  # noqa: ASYNC240 - a few bytes
        raise
    return "never"


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(1)


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("the disk is full")


class Order(BaseModel):
    size: int = Field(ge=1, le=10)
    colour: Literal["red", "blue"]
    gift: bool
    note: str | None = None


def details() -> Elicit[Order]:
    return Elicit("What do you want?", Order)


@server.tool()
def order(result: Annotated[ElicitationResult[Order], Resolve(details)]) -> str:
    """Order something: asks for the details, in the way of the protocol's version."""
    return f"{result.action}: {result.data.model_dump() if result.action == 'accept' else None}"


@server.tool()
async def open_page(context: Context, url: str) -> str:
    """Let the person open a page; only in the older protocol."""
    return (await context.elicit_url("Pay here", url, "e1")).action


@server.resource("memo://today")
def today() -> str:
    """What happens today."""
    return "lunch at one"


@server.prompt()
def greet(name: str) -> str:
    """Greet a person."""
    return f"Say hello to {name}"


if "STARTS" in os.environ:
    with Path(os.environ["STARTS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
