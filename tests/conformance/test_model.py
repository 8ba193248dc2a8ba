"""The suite's model, called by the SDKs of both APIs."""

from __future__ import annotations

import asyncio

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from conformance.model import Model

HISTORY = [
    {"role": "user", "content": "please note mk0001"},
    {"role": "assistant", "content": "Read: mk0001"},
    {"role": "user", "content": "please note mk0003, then mk0002"},
]


@pytest.fixture
async def model():
    async with Model() as model:
        yield model


async def anthropic(url, stream):
    async with AsyncAnthropic(api_key="none", base_url=url) as client:
        if not stream:
            return (await client.messages.create(model="any", max_tokens=9, messages=HISTORY)).content[0].text
        async with client.messages.stream(model="any", max_tokens=9, messages=HISTORY) as events:
            return await events.get_final_text()


async def openai(url, stream):
    async with AsyncOpenAI(api_key="none", base_url=url) as client:
        found = await client.chat.completions.create(model="any", messages=HISTORY, stream=stream)
        if not stream:
            return found.choices[0].message.content
        return "".join([chunk.choices[0].delta.content or "" async for chunk in found if chunk.choices])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("ask", [anthropic, openai])
async def test_it_answers_with_the_marks_that_no_answer_has(model, ask, stream):
    assert await ask(model.url, stream) == "Read: mk0003 mk0002"
    (request,) = model.requests
    assert request.marks == ("mk0001", "mk0003", "mk0002")
    assert await model.reached("mk0003", 1)
    assert not model.has_read("mk0004")


async def test_a_held_answer_comes_after_the_release(model):
    model.hold()
    asked = asyncio.create_task(anthropic(model.url, stream=False))
    assert await model.reached("mk0002", 5)
    assert not asked.done()
    model.release()
    assert await asked == "Read: mk0003 mk0002"
