import pytest

from roquet.observe.health import LIVE_PATH, READY_PATH, STACKS_PATH, always_ready, health_pages
from roquet.observe.http_server import HttpPage, HttpServer, PageUnavailable
from roquet.observe.page_client import read_response


async def text_of(page: HttpPage) -> bytes:
    return b"".join([piece async for piece in page.make()])


async def test_a_server_without_reasons_is_ready() -> None:
    pages = health_pages(always_ready)
    assert await text_of(pages[LIVE_PATH]) == b"ok\n"
    assert await text_of(pages[READY_PATH]) == b"ready\n"


async def test_the_stacks_show_where_the_server_is() -> None:
    text = await text_of(health_pages(always_ready)[STACKS_PATH])
    assert b"test_the_stacks_show_where_the_server_is" in text


async def test_reasons_make_a_page_unavailable_and_leave_the_other() -> None:
    pages = health_pages(lambda: ["one", "two"])
    with pytest.raises(PageUnavailable, match="one\ntwo"):
        await text_of(pages[READY_PATH])
    async with HttpServer(pages, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.port}"
        ready = await read_response(address, READY_PATH, timeout_ms=5_000)
        live = await read_response(address, LIVE_PATH, timeout_ms=5_000)
    assert (ready.status, ready.text) == (503, "one\ntwo\n")
    assert (live.status, live.text) == (200, "ok\n")
