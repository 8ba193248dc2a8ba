"""Parts for tests of agents: a scripted provider, tools of several tempers, recorders, and `make_agent`."""

from .provider import ScriptedProvider, after, answer, call, deaf, doing, fail, never, say, streaming, use
from .rows import faults, refusals, text_of, told
from .session import Agent, make_agent
from .tools import ScriptedTool, acting, deaf_tool, echo, gated, raising, returning
from .waiting import HANG_S, Milestones, deaf_to_one_cancel, soon
from .watching import Recorder, Shelf, WatchedContext, mount_watched_context

__all__ = [
    "HANG_S",
    "Agent",
    "Milestones",
    "Recorder",
    "ScriptedProvider",
    "ScriptedTool",
    "Shelf",
    "WatchedContext",
    "acting",
    "after",
    "answer",
    "call",
    "deaf",
    "deaf_to_one_cancel",
    "deaf_tool",
    "doing",
    "echo",
    "fail",
    "faults",
    "gated",
    "make_agent",
    "mount_watched_context",
    "never",
    "raising",
    "refusals",
    "returning",
    "say",
    "soon",
    "streaming",
    "text_of",
    "told",
    "use",
]
