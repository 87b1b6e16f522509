import msgspec
import pytest
from tests.dashboard.conftest import OpenSite
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, address, orders, send

from roquet.testing.clock import in_virtual_time


@in_virtual_time
async def test_the_first_look_is_a_form_with_the_topics(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        html = await it.browser.text("/messages")
        assert '<option value="orders">' in html
        assert "Choose a topic" in html


@in_virtual_time
async def test_messages_are_found_and_shown_as_a_page_and_as_json(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        await send(it, b'{"amount": 3}', tag="new", keys=("4711",))
        html = await it.browser.text("/messages?topic=orders&tags=new")
        assert "4711" in html
        assert "{&#34;amount&#34;: 3}" in html
        facts = await it.browser.facts("/messages?topic=orders&key=4711")
        assert [row["keys"] for row in facts["rows"]] == ["4711"]
        assert (await it.browser.facts("/messages?topic=orders&key=4712"))["rows"] == []
        assert "No such message" in await it.browser.text("/messages?topic=orders&key=4712")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("topic=nothing", "no broker has a topic"),
        ("topic=orders&tags=a&sql=b", "not by both"),
        ("topic=orders&sql=amount+>", "amount"),
        ("topic=orders&from=yesterday", "no time like"),
        ("id=hello", "id"),
        ("topic=<script>alert(1)</script>", "may hold only"),
    ],
)
@in_virtual_time
async def test_a_search_that_cannot_be_says_why(
    open_site: OpenSite, query: str, error: str
) -> None:
    async with orders(open_site) as it:
        response = await it.browser.get(f"/messages?{query}")
        assert response.status_code == 400
        assert error in response.text
        assert "<script>alert" not in response.text


@in_virtual_time
async def test_a_message_is_shown_with_properties_in_every_notation(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        place = await send(it, b'{"amount": 3}', properties={"colour": "green"})
        html = await it.browser.text(address("/messages/one", place))
        assert "colour" in html
        assert "green" in html
        assert "&#34;amount&#34;: 3" in html
        dump = await it.browser.text(address("/messages/one", place | {"as": "hex"}))
        assert "00000000  7b 22 61" in dump
        facts = await it.browser.facts(address("/messages/one", place))
        assert facts["message"]["body"] == '{"amount": 3}'
        response = await it.browser.get(address("/messages/one", place | {"as": "mp3"}))
        assert response.status_code == 400
        response = await it.browser.get(address("/messages/one", place | {"offset": "99"}))
        assert "no message at offset 99" in response.text


@in_virtual_time
async def test_a_binary_body_is_marked_and_downloaded_as_an_attachment(
    open_site: OpenSite,
) -> None:
    async with orders(open_site) as it:
        place = await send(it, b"\x00\xff<html>")
        assert ">binary<" in await it.browser.text(address("/messages/one", place))
        response = await it.browser.get(address("/messages/body", place))
        assert response.content == b"\x00\xff<html>"
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].startswith("attachment; ")
        assert response.headers["x-content-type-options"] == "nosniff"


@in_virtual_time
async def test_hidden_fields_are_hidden_everywhere(open_site: OpenSite) -> None:
    async with orders(open_site, "orders:card") as it:
        place = await send(it, b'{"card": "4111", "amount": 3}')
        pages = [
            "/messages?topic=orders",
            "/messages?topic=orders&text=amount",
            *(address(f"/messages/{page}", place) for page in ("one", "body", "new")),
            address("/messages/one", place | {"as": "hex"}),
        ]
        for page in pages:
            shown = await it.browser.text(page)
            assert "4111" not in shown, page
            assert "34 31 31 31" not in shown, page
        assert "4111" not in msgspec.json.encode(await it.browser.facts(pages[0])).decode()
        assert "4111" not in msgspec.json.encode(await it.browser.facts(pages[2])).decode()


@in_virtual_time
async def test_a_hidden_body_can_be_neither_seen_nor_downloaded(open_site: OpenSite) -> None:
    async with orders(open_site, "orders") as it:
        place = await send(it, b"secret")
        html = await it.browser.text(address("/messages/one", place))
        assert "hides the bodies" in html
        assert "secret" not in html
        response = await it.browser.get(address("/messages/body", place))
        assert response.status_code == 400
        assert b"secret" not in response.content
        facts = await it.browser.facts(address("/messages/one", place))
        assert "body" not in facts["message"]


@in_virtual_time
async def test_text_of_strangers_is_escaped_on_every_page(open_site: OpenSite) -> None:
    async with orders(open_site) as it:
        place = await send(
            it,
            HOSTILE.encode(),
            tag=HOSTILE,
            keys=(HOSTILE.replace(" ", ""),),
            properties={"note": HOSTILE, "<b>": "x"},
        )
        pages = ["/messages?topic=orders", "/messages/tail?topic=orders"]
        pages += [address(f"/messages/{page}", place) for page in ("one", "new")]
        for page in pages:
            html = await it.browser.text(page)
            assert not any(mark in html for mark in MARKS), page
            assert "{{7*7}}" in html or "tail" in page
        for field in ("key", "text", "tags", "topic", "id", "from"):
            response = await it.browser.get(f"/messages?topic=orders&{field}={HOSTILE}")
            assert not any(mark in response.text for mark in MARKS), field
