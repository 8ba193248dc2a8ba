"""A person installs the app in a browser: the service's page, Slack's page, and the result."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect
from service_process import serving_with_agents

from local_slack import Client, LocalSlack

pytestmark = pytest.mark.browser

FILE = """
instances: {{alpha: {{persona: {{name: Alpha, emoji: ":owl:"}}}}}}
connections:
  listen: "127.0.0.1:{port}"
  public_url: "{url}"
  keys: {{k1: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}}
installations: {{allow: any}}
workspace: {{root: files}}
store: sqlite:kept.db
"""


@pytest.fixture
async def slack():
    async with LocalSlack(client=Client("1.2", "s3cret"), installed=(), teams=("Playground", "Second")) as slack:
        yield slack


@pytest.fixture
async def page(browser, slack, model, tmp_path, unused_tcp_port):
    url = f"http://127.0.0.1:{unused_tcp_port}"
    config = tmp_path / "config.yaml"
    config.write_text(FILE.format(port=unused_tcp_port, url=url))
    variables = {**slack.variables, **model.env, "HOME": str(tmp_path)}
    async with serving_with_agents(variables, "--config", str(config)) as service:
        await service.says("service.ready")
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{url}/slack/install")
        yield page
        await context.close()


@pytest.mark.parametrize("answer", ["Allow", "Cancel"])
async def test_the_app_is_installed_in_the_chosen_workspace_or_in_none(page, slack, answer):
    _, second = slack.teams
    await page.get_by_role("link", name="Add to Slack").click()
    await page.get_by_role("combobox").select_option(second.team_id)
    await page.get_by_role("button", name=answer).click()
    await expect(page).to_have_url(re.compile("/slack/oauth_redirect"))
    if answer == "Allow":
        await expect(page.locator("body")).to_contain_text("Installed in Second")
        await expect(page.locator("body")).to_contain_text("/invite @ in a channel")
    else:
        await expect(page.locator("body")).not_to_contain_text("Installed")
    assert second.is_installed == (answer == "Allow")
