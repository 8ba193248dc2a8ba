"""Who plays: models, tools, hooks, a store, whoever approves and watches, and a crowd that writes and stops."""

from .approvals import Approvals
from .crowd import Crowd
from .hooks import Ear, hire_hooks
from .log import Log
from .model import Model
from .tools import hire_tools
from .watcher import Watcher

__all__ = ["Approvals", "Crowd", "Ear", "Log", "Model", "Watcher", "hire_hooks", "hire_tools"]
