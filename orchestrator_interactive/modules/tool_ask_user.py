"""`tool-ask-user`: the model asks the people in the thread, and waits for the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, model_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_WEEK_S = 7 * 24 * 3600.0
_MOST_OPTIONS = 5
# The text of a button.
_Option = Annotated[str, Field(min_length=1, max_length=70)]


class AskUserOptions(Options):
    """Options of `tool-ask-user`; `deadline_s` is the time for an answer, in seconds, if the model names none."""

    deadline_s: float = Field(default=3600.0, gt=0, le=_WEEK_S)


class _Input(Options):
    question: str = Field(min_length=1, max_length=1_000, description="The question, in one or two sentences.")
    options: list[_Option] = Field(
        default_factory=list,
        max_length=_MOST_OPTIONS,
        description="Up to five answers of at most 70 characters, as buttons. None: people answer in their own words.",
    )
    multiple: bool = Field(False, description="Whether several options may be chosen.")
    free_text: bool = Field(True, description="Whether people may reply in their own words instead.")
    private_to: str = Field(
        "", description="Id of the only person who is asked and sees the question, such as U123. Blank: everybody."
    )
    minutes: float | None = Field(None, gt=0, le=_WEEK_S / 60, description="How long to wait for the answer.")
    default: str | None = Field(None, description="The option that applies if no one answers in time.")

    @model_validator(mode="after")
    def _options_are_usable(self) -> _Input:
        if any(not option.strip() for option in self.options) or len(set(self.options)) < len(self.options):
            raise ValueError("the options must be different, and none may be blank")
        if self.default is not None and self.default not in self.options:
            raise ValueError("'default' must be one of the options")
        if not self.options and (self.multiple or not self.free_text):
            raise ValueError("without options, people can only answer in their own words")
        return self


class AskUserTool(ValidatedTool[_Input]):
    """Asks people a question; the answer is the result.

    A call survives the process: a repeated one finds its question and waits on.
    """

    name = "ask_user"
    description = (
        "Ask the people in the thread a question and wait for the answer. Use it when you cannot continue without a "
        "decision of theirs. Never use it to ask for permission to call a tool: that is asked by itself."
    )
    input_kind = _Input
    repeatable: ClassVar[bool] = True
    destructive: ClassVar[bool] = False
    # The question has its own deadline.
    timeout_s: ClassVar[float] = 2 * _WEEK_S

    def __init__(self, coordinator: ModuleCoordinator, deadline_s: float) -> None:
        self._coordinator = coordinator
        self._deadline_s = deadline_s

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        question = input.get("question") if isinstance(input, dict) else None
        if isinstance(input, dict) and input.get("private_to"):
            return "Asking one person in private"
        return f"Asking: {question}" if isinstance(question, str) else "Asking a question"

    async def _work(self, wanted: _Input) -> str:
        ask = self._coordinator.get_capability("people.ask")
        if ask is None:
            raise ValueError("No one can be asked here. Decide yourself, and say in your answer what you assumed.")
        timeout_s = self._deadline_s if wanted.minutes is None else 60 * wanted.minutes
        answer: str = await ask(
            wanted.question,
            options=tuple(wanted.options),
            is_multiple=wanted.multiple,
            takes_text=wanted.free_text or not wanted.options,
            person=wanted.private_to,
            timeout_s=timeout_s,
            default=wanted.default,
        )
        return answer


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `ask_user`. It asks through the capability `people.ask`, which the service registers.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(AskUserOptions, config, "tool-ask-user")
    tool = AskUserTool(coordinator, options.deadline_s)
    await coordinator.mount("tools", tool, name=tool.name)
