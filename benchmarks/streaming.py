"""Cost of one event of a streamed answer in our process, from the socket to the text."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import openai
from anthropic import AsyncAnthropic, DefaultAioHttpClient

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.messages_api import ALL_AT_ONCE, ONE_BY_ONE, WORDS, messages_api_elsewhere
from orchestrator_interactive.kernel import AmplifierSession, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from benchmarks.harness import Operations

    # Requests an answer with that many deltas and returns its text.
    Asking = Callable[[str, int], Awaitable[str]]

DELTAS = {ALL_AT_ONCE: 2000, ONE_BY_ONE: 500}
KEY = "no-key"
PROMPT = "Go on."


@asynccontextmanager
async def our_provider(base_url: str, name: str = "anthropic", **options: str) -> AsyncIterator[Asking]:
    config = {"api_key": KEY, "base_url": base_url, **options}
    plan = {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "providers": [{"module": f"provider-{name}", "config": config}],
    }
    async with AmplifierSession(plan) as session:
        provider = session.coordinator.get("providers")[name]

        async def ask(model: str, deltas: int) -> str:
            request = ChatRequest(
                messages=[Message(role="user", content=PROMPT)], model=model, max_output_tokens=deltas
            )
            answer: ChatResponse = await provider.complete(request, stream=ResponseStream())
            return answer.text

        yield ask


def our_openai_provider(base_url: str) -> AbstractAsyncContextManager[Asking]:
    return our_provider(f"{base_url}/v1", "openai", model="any")


@asynccontextmanager
async def openai_sdk_events(base_url: str) -> AsyncIterator[Asking]:
    http_client = openai.DefaultAioHttpClient()
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{base_url}/v1", http_client=http_client) as client:

        async def ask(model: str, deltas: int) -> str:
            chunks = await client.chat.completions.create(**_asked(model, deltas), stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

        yield ask


@asynccontextmanager
async def sdk_events(base_url: str, http_client: Callable[[], Any] | None = None) -> AsyncIterator[Asking]:
    async with AsyncAnthropic(api_key=KEY, base_url=base_url, http_client=http_client and http_client()) as client:

        async def ask(model: str, deltas: int) -> str:
            events = await client.messages.create(**_asked(model, deltas), stream=True)
            return "".join([event.delta.text async for event in events if event.type == "content_block_delta"])

        yield ask


@asynccontextmanager
async def sdk_helper(base_url: str) -> AsyncIterator[Asking]:
    async with AsyncAnthropic(api_key=KEY, base_url=base_url, http_client=DefaultAioHttpClient()) as client:

        async def ask(model: str, deltas: int) -> str:
            async with client.messages.stream(**_asked(model, deltas)) as stream:
                return await stream.get_final_text()

        yield ask


def _asked(model: str, deltas: int) -> dict[str, Any]:
    return {"max_tokens": deltas, "messages": [{"role": "user", "content": PROMPT}], "model": model}


@asynccontextmanager
async def operations(client: Callable[[str], AbstractAsyncContextManager[Asking]]) -> AsyncIterator[Operations]:
    async with AsyncExitStack() as stack:
        ask = await stack.enter_async_context(client(await stack.enter_async_context(messages_api_elsewhere())))

        async def whole_answer(manner: str) -> None:
            if await ask(manner, DELTAS[manner]) != WORDS * DELTAS[manner]:
                raise RuntimeError("The answer is incomplete.")

        yield {manner: partial(whole_answer, manner) for manner in DELTAS}


BENCHMARK = Benchmark(
    title="An event of a streamed answer",
    rows=(
        Row(ALL_AT_ONCE, "as fast as they can be read", target=20, meter="cpu", per=DELTAS[ALL_AT_ONCE]),
        Row(ONE_BY_ONE, "one at a time", meter="cpu", per=DELTAS[ONE_BY_ONE]),
    ),
    sides=(
        Side("ours, provider-anthropic", partial(operations, our_provider)),
        Side("ours, provider-openai", partial(operations, our_openai_provider)),
        Side(
            "the SDK's events, by aiohttp", partial(operations, partial(sdk_events, http_client=DefaultAioHttpClient))
        ),
        Side("the SDK's events, by its own client", partial(operations, sdk_events)),
        Side("the SDK's `.stream()` helper, by aiohttp", partial(operations, sdk_helper)),
        Side("OpenAI's SDK's chunks, by aiohttp", partial(operations, openai_sdk_events)),
    ),
    notes=(
        (
            f"CPU time of the reading process per event, for an answer of {DELTAS[ALL_AT_ONCE]:,} text deltas over "
            "HTTP from a server in another process. One at a time: each event is in its own packet, which wakes the "
            "reader."
        ),
    ),
)
