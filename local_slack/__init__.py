"""A Slack workspace on your machine: Web API, Socket Mode, HTTP events and a web page, for people and for tests.

``async with LocalSlack() as slack`` runs one; ``python -m local_slack`` does the same from a shell.
"""

from local_slack.clients import AppClient, InstalledTeam, PersonClient
from local_slack.delivery.delivery import RetrySchedule
from local_slack.delivery.events import EVENTS
from local_slack.delivery.faults import (
    BlockUntil,
    Delayed,
    DeliveryFault,
    DeliveryFaults,
    DropAfterCall,
    DropBeforeCall,
    Dropped,
    Duplicated,
    ErrorResponse,
    Fault,
    Faults,
    HeldUntil,
    RateLimited,
    ServerError,
    SlowResponse,
)
from local_slack.delivery.recorder import Recorder
from local_slack.delivery.socket_mode import DisconnectReason
from local_slack.methods.app import Shortcut
from local_slack.methods.rate_limits import MethodRateLimiter, PerChannel, PerMinute
from local_slack.methods.web_api import SLACK_LIMITS
from local_slack.server import LocalSlack
from local_slack.workspace.agents import AgentSession
from local_slack.workspace.channels import Rules
from local_slack.workspace.errors import LocalSlackError, NotLoopback, PortInUse, SlackRefused
from local_slack.workspace.files import File
from local_slack.workspace.installations import Client
from local_slack.workspace.messages import Channel, Reaction, WorkspaceMessage
from local_slack.workspace.people import Bot, Person
from local_slack.workspace.workspace import Workspace

__all__ = [
    "EVENTS",
    "SLACK_LIMITS",
    "AgentSession",
    "AppClient",
    "BlockUntil",
    "Bot",
    "Channel",
    "Client",
    "Delayed",
    "DeliveryFault",
    "DeliveryFaults",
    "DisconnectReason",
    "DropAfterCall",
    "DropBeforeCall",
    "Dropped",
    "Duplicated",
    "ErrorResponse",
    "Fault",
    "Faults",
    "File",
    "HeldUntil",
    "InstalledTeam",
    "LocalSlack",
    "LocalSlackError",
    "MethodRateLimiter",
    "NotLoopback",
    "PerChannel",
    "PerMinute",
    "Person",
    "PersonClient",
    "PortInUse",
    "RateLimited",
    "Reaction",
    "Recorder",
    "RetrySchedule",
    "Rules",
    "ServerError",
    "Shortcut",
    "SlackRefused",
    "SlowResponse",
    "Workspace",
    "WorkspaceMessage",
]
