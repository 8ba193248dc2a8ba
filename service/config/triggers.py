"""The section `triggers`: other systems that begin or notify conversations over HTTP."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from connector.events import checked_ts
from service.config.section import Section
from service.config.slack import Address, ChannelId, WorkspaceId  # noqa: TC001 - pydantic needs them


class TriggerConfig(Section):
    """One trigger, at `/triggers/NAME`.

    Args:
        secret: with which its requests are signed, at least 16 characters.
        team: id of its workspace. Default: the only one.
        channel: id of the channel in which it begins threads, and may notify conversations.
        thread: the thread of the channel that gets its messages, by the ts of its first message. Default: each message
            begins a thread.
        instance: name of the agent. Default: that of the channel.
        instructions: the task of the agent.
        text: template (jinja2) of the agent's prompt; its variables are the keys of the JSON body.
            Default: the body.
        per_minute: how many requests are accepted at once, and then in each minute on average.
    """

    secret: SecretStr = Field(min_length=16)
    team: WorkspaceId | None = None
    channel: ChannelId
    thread: Annotated[str, AfterValidator(checked_ts)] | None = None
    instance: str | None = None
    instructions: str = Field(default="", max_length=4_000)
    text: str | None = None
    per_minute: int = Field(default=10, ge=1, le=600)

    @field_validator("text")
    @classmethod
    def _is_a_template(cls, text: str | None) -> str | None:
        if text is not None:
            from orchestrator_interactive.registries.templates import TemplateManager  # noqa: PLC0415 - it takes long

            TemplateManager().check(text)
        return text


class TriggersConfig(Section):
    """Triggers of other systems.

    Args:
        listen: address of their requests. Default: no server.
        endpoints: the triggers by their names.
    """

    listen: Address | None = None
    endpoints: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")], TriggerConfig] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _has_an_address(self) -> Self:
        if self.endpoints and self.listen is None:
            raise ValueError("`listen` is not set; write the address for the requests, such as 127.0.0.1:3001")
        return self
