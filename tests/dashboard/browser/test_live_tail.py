"""The live tail in a real browser, with a thousand messages a second in its topic."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from playwright.async_api import expect
from tests.cli.servers.test_start import ENVIRON, command
from tests.dashboard.browser.chromium import Tab, chromium, needs_chromium, tab
from tests.dashboard.pages.orders_topic import HOSTILE

from roquet.client.producer import Producer
from roquet.model.message import Message
from roquet.testing.cluster import cluster

log = logging.getLogger(__name__)

pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.timeout(120)]

RATE: Final = 1_000
"""Messages a second."""

BODY: Final = json.dumps({"lines": ["an article"] * 300})
"""About 4 KiB: a dashboard that kept them would grow by 4 MiB a second."""

WINDOWS: Final = 5
"""Measurements one after another: in some of them another process may take a core."""

WINDOW_S: Final = 2

FRAME_GAP_MAX_MS: Final = 200
"""Time between two frames in the smoothest window."""

TASK_MAX_MS: Final = 100
"""CPU time of one task of the page's main thread, in all windows: no machine is too busy for it."""

MAIN_THREAD_MAX: Final = 0.4
"""Share of the main thread's time that its tasks may take, in CPU time."""

ROWS_MAX: Final = 300

MEMORY_MAX: Final = 16 * 1024 * 1024
"""Bytes by which the dashboard's process may grow while it is sent 40 MiB of messages."""

TASKS: Final = "disabled-by-default-devtools.timeline"
"""The category of Chromium's trace with each task of a thread and its CPU time."""

WATCH: Final = """
() => {
  let last = performance.now();
  window.tailWatch = {frames: 0, gap: 0, rows: 0};
  const frame = (now) => {
    const seen = window.tailWatch;
    seen.frames += 1;
    seen.gap = Math.max(seen.gap, now - last);
    seen.rows = Math.max(seen.rows, document.querySelectorAll("#tail-rows tr").length);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
"""

RESTART: Final = """
() => {
  const seen = window.tailWatch;
  window.tailWatch = {frames: 0, gap: 0, rows: 0};
  return seen;
}
"""


class FrameCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of one window of time."""

    frames: int
    gap: float
    """Longest time between two of them in ms."""
    rows: int
    """Most rows of the table."""


class MainThread(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of the page's main thread."""

    longest_ms: float
    """CPU time of the longest one."""
    share: float
    """Part of the time that they took, in CPU time."""


@asynccontextmanager
async def dashboard_process(namesrv: str) -> AsyncIterator[tuple[str, int]]:
    """A dashboard in a process of its own: its URL and process id."""
    process = await asyncio.create_subprocess_exec(
        *command("dashboard", "--namesrv", namesrv, "--port", "0"),
        env=ENVIRON,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            line = (await process.stdout.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found is not None, line
        yield found[0], process.pid
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def flood(namesrv: str) -> AsyncIterator[None]:
    """Send a thousand messages a second meanwhile; most of that rate has to be reached."""
    loop, ends = asyncio.get_running_loop(), asyncio.Event()

    async def send() -> float:
        sent, began = 0, loop.time()
        async with Producer(namesrv) as producer:
            while not ends.is_set():
                body = BODY.replace("an article", f"article {sent:,}", 1).encode()
                await producer.send_batch([Message("orders", body, tag="flood", keys=("k",))] * 50)
                sent += 50
                await asyncio.sleep(began + sent / RATE - loop.time())
        return sent / (loop.time() - began)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        ends.set()
        rate = await sending
    log.info("%.0f messages a second were sent", rate)
    assert rate > 0.8 * RATE, "this machine sends too slowly for a judgement"


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    (line,) = [text for text in status.splitlines() if text.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def watch(browser: Any, shown: Tab) -> tuple[list[FrameCounts], MainThread]:
    """Measure window by window, and trace the tasks of all of them."""
    found = []
    await browser.start_tracing(page=shown.page, categories=[TASKS])
    await shown.page.evaluate(RESTART)
    for _ in range(WINDOWS):
        await asyncio.sleep(WINDOW_S)
        found.append(msgspec.convert(await shown.page.evaluate(RESTART), FrameCounts, strict=False))
    events = msgspec.json.decode(await browser.stop_tracing())["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks_ms = [
        event["tdur"] / 1_000
        for event in events
        if event["name"] == "RunTask"
        and (event["pid"], event["tid"]) in threads
        and "tdur" in event  # not of one that the end of the trace has cut
    ]
    share = sum(tasks_ms) / (WINDOWS * WINDOW_S * 1_000)
    return found, MainThread(longest_ms=max(tasks_ms), share=share)


async def check_controls(shown: Tab, namesrv: str) -> None:
    """Pause, clear and go on; a hostile message is text."""
    rows, counts = shown.page.locator("#tail-rows tr"), shown.page.locator("#tail-counts")
    pause = shown.page.locator("#tail-pause")
    await pause.click()
    await expect(counts).to_contain_text("paused")
    await shown.page.locator("#tail-clear").click()
    await expect(rows).to_have_count(0)
    await pause.click()
    await expect(counts).to_have_text(re.compile("^0 messages"))
    async with Producer(namesrv) as producer:
        await producer.send("orders", HOSTILE.encode(), tag=HOSTILE)
    await rows.nth(0).wait_for()
    await expect(rows.nth(0)).to_contain_text(HOSTILE)


async def test_a_tail_of_a_thousand_messages_a_second_stays_small_and_smooth() -> None:
    async with cluster(brokers=2, default_queue_count=2) as running:
        namesrv = running.namesrv_addr
        async with Producer(namesrv) as producer:
            await producer.send("orders", b"the topic is there")
        async with (
            dashboard_process(namesrv) as (url, pid),
            chromium() as browser,
            tab(browser, url) as shown,
        ):
            await shown.go("/messages/tail?topic=orders&rate=400")
            await expect(shown.page.locator("#tail-counts")).to_contain_text("messages")
            await shown.page.evaluate(WATCH)
            async with flood(namesrv):
                await expect(shown.page.locator("#tail-rows tr")).to_have_count(ROWS_MAX)
                memory = resident_bytes(pid)
                windows, tasks = await watch(browser, shown)
                grown = resident_bytes(pid) - memory
            log.info("%s, %s, %d bytes more", windows, tasks, grown)
            assert tasks.longest_ms < TASK_MAX_MS
            assert tasks.share < MAIN_THREAD_MAX
            assert min(window.gap for window in windows) < FRAME_GAP_MAX_MS
            assert max(window.rows for window in windows) == ROWS_MAX
            assert grown < MEMORY_MAX
            await expect(shown.page.locator("#tail-counts")).to_contain_text("too many to show")
            await check_controls(shown, namesrv)
            assert shown.errors == []
