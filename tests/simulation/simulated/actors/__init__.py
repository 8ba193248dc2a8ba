"""Who plays: models, tools, hooks, a store, whoever approves and watches, and a crowd that writes and stops."""

from .approvals import Approvals
from .hooks import Ear, hire_hooks
from .log import Log
from .model import Model
from .observer import Watcher
from .people import Crowd
from .tools import hire_tools

__all__ = ["Approvals", "Crowd", "Ear", "Log", "Model", "Watcher", "hire_hooks", "hire_tools"]
