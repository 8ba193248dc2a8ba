"""Make a PNG of each figure of slack-setup.html, in this folder."""  # noqa: INP001 - a script

from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent

with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 780, "height": 600}, device_scale_factor=1.5)
    page.goto((HERE / "slack-setup.html").as_uri())
    for figure in page.locator("figure").all():
        figure.screenshot(path=HERE / f"{figure.get_attribute('id')}.png")
    browser.close()
