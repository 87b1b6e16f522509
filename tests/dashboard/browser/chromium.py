"""Chromium of this machine, without a window, and what went wrong in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

EXECUTABLE: Final = Path("/usr/bin/chromium")

SWITCHES: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)

NARROW: Final = {"width": 390, "height": 844}
WIDE: Final = {"width": 1280, "height": 820}

needs_chromium: Final = pytest.mark.skipif(
    not EXECUTABLE.exists(), reason="no Chromium on this machine: apt-get install chromium"
)


class Tab:
    """A page of the browser, with the errors and dialogs that it had."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self._url = url.rstrip("/")
        page.on("console", lambda m: self._note(m.type, m.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._dialog)

    async def go(self, path: str) -> None:
        """Open a page of the dashboard, which has to be there."""
        response = await self.page.goto(self._url + path)
        assert response is not None
        assert response.status == 200, f"{path}: {response.status}"

    async def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    async def _dialog(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
    """A browser of this machine."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=EXECUTABLE, args=[*SWITCHES])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def tab(
    browser: Any, url: str, *, dark: bool = False, narrow: bool = False
) -> AsyncIterator[Tab]:
    """A new tab with a profile of its own."""
    context: BrowserContext = await browser.new_context(
        viewport=NARROW if narrow else WIDE, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(20_000)
    try:
        yield Tab(await context.new_page(), url)
    finally:
        await context.close()


async def check_pages(browser: Any, url: str, paths: Sequence[str]) -> None:
    """Open pages in both themes and on a telephone; none may have an error, or be too wide."""
    for dark, narrow in ((False, False), (True, False), (False, True)):
        async with tab(browser, url, dark=dark, narrow=narrow) as shown:
            for path in paths:
                await shown.go(path)
                assert await shown.page.locator("h1").count() == 1, path
                assert shown.errors == [], path
                assert await shown.overflow() <= 0, f"{path} is too wide, narrow: {narrow}"
