"""Chromium of this machine, without a window, and what went wrong in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright, expect

EXECUTABLE: Final = Path("/usr/bin/chromium")

expect.set_options(timeout=20_000)  # as long as tabs wait for what is clicked

SWITCHES: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)

NAMED_ROLES: Final = frozenset(
    {
        "button", "checkbox", "combobox", "DisclosureTriangle", "dialog", "image", "link",
        "navigation", "radio", "region", "search", "searchbox", "spinbutton", "table", "textbox",
        "DateTime", "Date",
    }
)  # fmt: skip
"""Roles, as Chromium calls them, that say nothing without a name."""

PALE: Final = """
() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const pale = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3)
      .map((node) => node.data.trim()).join("");
    if (!text || element.closest("svg, option, .hidden, .skip, :disabled")) continue;
    if (!element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const [low, high] = [luminance(numbers(style.color)), luminance(ground(element))]
      .sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < (isLarge ? 3 : 4.5)) pale.push(`${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
  }
  return pale;
}
"""

SCROLLED: Final = """
() => [...document.querySelectorAll("body *:not(pre)")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
  .map((e) => `${e.tagName}.${e.className}: ${e.scrollWidth} of ${e.clientWidth}`)
"""

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
        response = await self.page.goto(self._url + path)
        assert response is not None
        assert response.status == 200, f"{path}: {response.status}"

    async def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    async def scrolled(self) -> list[str]:
        """Parts of the page that scroll sideways, `pre` blocks aside."""
        found: list[str] = await self.page.evaluate(SCROLLED)
        return found

    async def nameless(self) -> list[str]:
        """Roles of parts without a name, as a screen reader would get them from Chromium."""
        session = await self.page.context.new_cdp_session(self.page)
        tree = await session.send("Accessibility.getFullAXTree")
        await session.detach()
        return [
            f"{node['role']['value']} {node.get('properties', '')}"
            for node in tree["nodes"]
            if not node.get("ignored")
            and node.get("role", {}).get("value") in NAMED_ROLES
            and not node.get("name", {}).get("value", "").strip()
        ]

    async def pale(self) -> list[str]:
        """Texts whose contrast to their ground is below what WCAG 2 wants (level AA)."""
        found: list[str] = await self.page.evaluate(PALE)
        return found

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    async def _dialog(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


@asynccontextmanager
async def chromium() -> AsyncIterator[Any]:
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
    """Open pages in both themes and on a telephone.

    None may have an error, be too wide or too pale, or have a part without a name.
    """
    for dark, narrow in ((False, False), (True, False), (False, True)):
        async with tab(browser, url, dark=dark, narrow=narrow) as shown:
            for path in paths:
                await shown.go(path)
                assert await shown.page.locator("h1").count() == 1, path
                assert shown.errors == [], path
                assert await shown.overflow() <= 0, f"{path} is too wide, narrow: {narrow}"
                assert not narrow or await shown.scrolled() == [], path
                assert await shown.pale() == [], f"{path}, dark: {dark}"
                assert narrow or dark or await shown.nameless() == [], path
