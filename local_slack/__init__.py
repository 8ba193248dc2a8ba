"""A Slack workspace on your machine: Web API, Socket Mode and a web page, for people and for tests.

``async with LocalSlack() as slack`` runs one; ``python -m local_slack`` does the same from a shell.
"""

from .delivery import RetrySchedule
from .errors import LocalSlackError, NotLoopback, PortInUse, SlackRefused
from .faults import Breaks, DropsAfterwards, DropsBefore, Fault, Faults, RateLimits, Refuses, Waits
from .messages import Channel, Message, Reaction
from .people import Bot, Person
from .person_client import PersonClient
from .server import LocalSlack
from .socket_mode import DisconnectReason
from .workspace import Workspace

__all__ = [
    "Bot",
    "Breaks",
    "Channel",
    "DisconnectReason",
    "DropsAfterwards",
    "DropsBefore",
    "Fault",
    "Faults",
    "LocalSlack",
    "LocalSlackError",
    "Message",
    "NotLoopback",
    "Person",
    "PersonClient",
    "PortInUse",
    "RateLimits",
    "Reaction",
    "Refuses",
    "RetrySchedule",
    "SlackRefused",
    "Waits",
    "Workspace",
]
