"""The whole service in simulated time: several processes, their store, Slack, and people in threads."""

from . import broken
from .features import FEATURES
from .parts import Parts
from .trial import WANTED, tried

__all__ = ["FEATURES", "WANTED", "Parts", "broken", "tried"]
