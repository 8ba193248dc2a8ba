"""A tool that counts words."""

from orchestrator_interactive.kernel.contracts.models import ToolResult


class CountWords:
    name = "count_words"
    description = "Counts the words of a text."
    side_effect_free = True

    def get_schema(self):
        return {
            "type": "object",
            "properties": {"text": {"type": "string"}, "lines": {"type": "boolean"}},
            "required": ["text"],
        }

    async def execute(self, input):  # noqa: A002 - the name is the contract's
        text = input.get("text")
        if not isinstance(text, str):
            return ToolResult(success=False, error={"message": "text is required, and must be a text."})
        return ToolResult(output={"words": len(text.split())})


async def on_session_ready(coordinator):
    coordinator.register_capability("words.ready", value=True)


async def mount(coordinator, config):
    tool = CountWords()
    await coordinator.mount("tools", tool, name=tool.name)

    def clean_up():
        coordinator.register_capability("words.ready", value=False)

    return clean_up
