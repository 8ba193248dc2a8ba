"""An event loop in virtual time, whose order of callbacks comes from a seed."""

from .loop import LIFE, Busy, Deadlock, NotSimulated, SimulatedLoop
from .order import InOrder, Lopsided, Order, Ready, Shuffled, order_for
from .stalls import standing

__all__ = [
    "LIFE",
    "Busy",
    "Deadlock",
    "InOrder",
    "Lopsided",
    "NotSimulated",
    "Order",
    "Ready",
    "Shuffled",
    "SimulatedLoop",
    "order_for",
    "standing",
]
