"""A Slack workspace on your machine: Web API, Socket Mode, HTTP events and a web page, for people and for tests.

``async with LocalSlack() as slack`` runs one; ``python -m local_slack`` does the same from a shell.
"""

from .delivery import RetrySchedule
from .delivery_faults import DeliveryFault, DeliveryFaults, Late, Lost, Twice
from .errors import LocalSlackError, NotLoopback, PortInUse, SlackRefused
from .faults import Breaks, DropsAfterwards, DropsBefore, Fault, Faults, RateLimits, Refuses, Slow, Waits
from .files import File
from .messages import Channel, Message, Reaction
from .people import Bot, Person
from .person_client import PersonClient
from .rate_limits import SLACK_LIMITS, PerChannel, PerMinute, RateLimiter
from .recorder import Recorder
from .rules import Rules
from .server import LocalSlack
from .sessions import Session
from .socket_mode import DisconnectReason
from .subscription import EVENTS
from .team import InstalledTeam
from .workspace import Workspace

__all__ = [
    "EVENTS",
    "SLACK_LIMITS",
    "Bot",
    "Breaks",
    "Channel",
    "DeliveryFault",
    "DeliveryFaults",
    "DisconnectReason",
    "DropsAfterwards",
    "DropsBefore",
    "Fault",
    "Faults",
    "File",
    "InstalledTeam",
    "Late",
    "LocalSlack",
    "LocalSlackError",
    "Lost",
    "Message",
    "NotLoopback",
    "PerChannel",
    "PerMinute",
    "Person",
    "PersonClient",
    "PortInUse",
    "RateLimiter",
    "RateLimits",
    "Reaction",
    "Recorder",
    "Refuses",
    "RetrySchedule",
    "Rules",
    "Session",
    "SlackRefused",
    "Slow",
    "Twice",
    "Waits",
    "Workspace",
]
