"""An answer on the page: it grows while the model writes it, with the plan above, and ends as Markdown with a file."""

from __future__ import annotations

import pytest
from anthropic_server import Gate, text, tool_call

pytestmark = pytest.mark.browser

PLAN = {
    "items": [{"text": "Read the numbers", "status": "done"}, {"text": "Write the report", "status": "in_progress"}]
}
BEGUN = """# Sales in May

Sales grew in *four* of five months. The launch on **3 May** explains most of it, and the rest comes from the north.

| month | sales |
|:------|------:|
| March | 120 |
| April | 140 |
| May | 180 |

"""
ENDED = """- [x] numbers read
- [ ] report reviewed by <@U0BEN>

The script, from [the handbook](https://example.org/handbook), is in `plot.py`:

```python
for month in months:
    plot(month, sales[month] < 200)
```
"""


@pytest.fixture
async def page(open_page, environment, model):
    async with environment.serving(**model.env) as service:
        await service.says("service.ready")
        yield await open_page(environment.slack.url)


async def test_an_answer_grows_on_the_page_and_is_complete(page, model, environment):
    writing, working = Gate(), Gate()
    model.reply(
        tool_call("todo", PLAN),
        tool_call("write_file", {"path": "plot.py", "content": "import months\n" * 12}),
        tool_call("read_file", {"path": "missing.csv"}),
    )
    model.reply(working, text(BEGUN, writing, ENDED))
    await page.write(page.channel, "@alpha how were sales?")
    await page.see(page.thread, "To do: 1 of 2 done")
    await page.see(page.thread, "Writing plot.py")
    await page.screenshot("streams-1-cards")
    working.open()
    await page.see(page.thread, "The launch on 3 May explains")
    await page.screenshot("streams-2-written")
    writing.open()
    await page.see(page.thread, "report reviewed by")
    await page.see(page.thread, "import months")
    await page.screenshot("streams-3-complete")
    channel = environment.slack.channel("general").id
    (root,) = environment.slack.workspace.messages(channel)[:1]
    (answer,) = [each for each in environment.slack.workspace.thread(channel, root.ts) if "Sales in May" in each.text]
    assert not answer.edited
    assert "<@U0BEN>" not in str(answer.blocks)
