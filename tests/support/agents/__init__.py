"""Parts for tests of agents: a scripted provider, tools with various behaviours, recorders, and `make_agent`."""

from .after_run import delivered, goes_on, late_results, results
from .milestones import HANG_S, LONG_S, Milestones, deaf_to_one_cancel, deaf_to_the_loop, soon
from .provider import ScriptedProvider, after, answer, call, deaf, doing, fail, never, say, streaming, use
from .recorders import ObservedContext, Recorder, StaticLoader, mount_observed_context
from .rows import faults, text_of, told
from .session import Agent, make_agent
from .tools import Person, ScriptedTool, acting, deaf_tool, echo, gated, having, raising, returning

__all__ = [
    "HANG_S",
    "LONG_S",
    "Agent",
    "Milestones",
    "ObservedContext",
    "Person",
    "Recorder",
    "ScriptedProvider",
    "ScriptedTool",
    "StaticLoader",
    "acting",
    "after",
    "answer",
    "call",
    "deaf",
    "deaf_to_one_cancel",
    "deaf_to_the_loop",
    "deaf_tool",
    "delivered",
    "doing",
    "echo",
    "fail",
    "faults",
    "gated",
    "goes_on",
    "having",
    "late_results",
    "make_agent",
    "mount_observed_context",
    "never",
    "raising",
    "results",
    "returning",
    "say",
    "soon",
    "streaming",
    "text_of",
    "told",
    "use",
]
