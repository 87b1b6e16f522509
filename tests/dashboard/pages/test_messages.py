import msgspec
import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, address, orders, send

from roquet.admin.client import AdminClient
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.pages.messages import steps_of, trace_of
from roquet.model.errors import UsageError
from roquet.testing.cluster import cluster
from roquet.wire.trace_text import (
    ConsumeEndTrace,
    ConsumeReturnType,
    ConsumeStartTrace,
    RecallTrace,
    SendTrace,
    TransactionTrace,
)

pytestmark = pytest.mark.virtual_time


async def test_the_first_look_is_a_form_with_the_topics(orders_site: Site) -> None:
    html = await orders_site.browser.text("/messages")
    assert '<option value="orders">' in html
    assert "Choose a topic" in html


async def test_messages_are_found_and_shown_as_a_page_and_as_json(orders_site: Site) -> None:
    await send(orders_site, b'{"amount": 3}', tag="new", keys=("4711",))
    html = await orders_site.browser.text("/messages?topic=orders&tags=new")
    assert "4711" in html
    assert "{&#34;amount&#34;: 3}" in html
    facts = await orders_site.browser.facts("/messages?topic=orders&key=4711")
    assert [row["keys"] for row in facts["rows"]] == ["4711"]
    assert (await orders_site.browser.facts("/messages?topic=orders&key=4712"))["rows"] == []
    assert "No such message" in await orders_site.browser.text("/messages?topic=orders&key=4712")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("topic=orders&tags=a&sql=b", "not by both"),
        ("topic=orders&sql=amount+>", "amount"),
        ("topic=orders&from=yesterday", "no time like"),
        ("id=hello", "id"),
        ("topic=<script>alert(1)</script>", "may hold only"),
    ],
)
async def test_a_search_that_cannot_be_says_why(orders_site: Site, query: str, error: str) -> None:
    response = await orders_site.browser.get(f"/messages?{query}")
    assert response.status_code == 400
    assert error in response.text
    assert "<script>alert" not in response.text


async def test_a_message_is_shown_with_properties_in_every_notation(orders_site: Site) -> None:
    place = await send(orders_site, b'{"amount": 3}', properties={"colour": "green"})
    html = await orders_site.browser.text(address("/messages/one", place))
    assert "colour" in html
    assert "green" in html
    assert "&#34;amount&#34;: 3" in html
    dump = await orders_site.browser.text(address("/messages/one", place | {"as": "hex"}))
    assert "00000000  7b 22 61" in dump
    facts = await orders_site.browser.facts(address("/messages/one", place))
    assert facts["message"]["body"] == '{"amount": 3}'
    response = await orders_site.browser.get(address("/messages/one", place | {"as": "mp3"}))
    assert response.status_code == 400
    response = await orders_site.browser.get(address("/messages/one", place | {"offset": "99"}))
    assert "no message at offset 99" in response.text


async def test_a_binary_body_is_marked_and_downloaded_as_an_attachment(orders_site: Site) -> None:
    place = await send(orders_site, b"\x00\xff<html>")
    assert ">binary<" in await orders_site.browser.text(address("/messages/one", place))
    response = await orders_site.browser.get(address("/messages/body", place))
    assert response.content == b"\x00\xff<html>"
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"].startswith("attachment; ")
    assert response.headers["x-content-type-options"] == "nosniff"


async def test_hidden_fields_are_hidden_everywhere() -> None:
    async with orders("orders:card") as it:
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


async def test_a_hidden_body_can_be_neither_seen_nor_downloaded() -> None:
    async with orders("orders") as it:
        place = await send(it, b"secret")
        html = await it.browser.text(address("/messages/one", place))
        assert "hides the bodies" in html
        assert "secret" not in html
        response = await it.browser.get(address("/messages/body", place))
        assert response.status_code == 400
        assert b"secret" not in response.content
        facts = await it.browser.facts(address("/messages/one", place))
        assert "body" not in facts["message"]


async def test_text_of_strangers_is_escaped_on_every_page(orders_site: Site) -> None:
    place = await send(
        orders_site,
        HOSTILE.encode(),
        tag=HOSTILE,
        keys=(HOSTILE.replace(" ", ""),),
        properties={"note": HOSTILE, "<b>": "x"},
    )
    pages = ["/messages?topic=orders", "/messages/tail?topic=orders"]
    pages += [address(f"/messages/{page}", place) for page in ("one", "new")]
    for page in pages:
        html = await orders_site.browser.text(page)
        assert not any(mark in html for mark in MARKS), page
        assert "{{7*7}}" in html or "tail" in page
    for field in ("key", "text", "tags", "topic", "id", "from"):
        response = await orders_site.browser.get(f"/messages?topic=orders&{field}={HOSTILE}")
        assert not any(mark in response.text for mark in MARKS), field


SENT = SendTrace(
    at_ms=10, group="shop", topic="orders", message_id="M", store_host="10.0.0.1:10911", took_ms=3
)


def test_a_send_and_two_tries_come_in_order_of_time() -> None:
    steps = steps_of(
        "M",
        [
            ConsumeEndTrace(request_id="r2", message_id="M", took_ms=5),
            ConsumeStartTrace(at_ms=30, group="billing", request_id="r2", message_id="M", tries=1),
            ConsumeStartTrace(at_ms=20, group="billing", request_id="r1", message_id="M"),
            ConsumeEndTrace(
                request_id="r1",
                message_id="M",
                took_ms=7,
                success=False,
                outcome=ConsumeReturnType.RAISED,
            ),
            SENT,
        ],
    )
    assert [(step.event, step.took_ms, step.success) for step in steps] == [
        ("sent", 3, True),
        ("raised an error, try 1", 7, False),
        ("handled, try 2", 5, True),
    ]
    assert steps[0].detail == "to 10.0.0.1:10911"


def test_a_handler_that_has_not_reported_is_shown_as_open() -> None:
    (step,) = steps_of("M", [ConsumeStartTrace(at_ms=1, request_id="r", message_id="M")])
    assert (step.event, step.success) == ("handler runs, or never reported, try 1", None)


def test_an_end_without_its_start_is_shown_by_itself() -> None:
    (step,) = steps_of("M", [ConsumeEndTrace(request_id="r", message_id="M", outcome=9)])
    assert step.event == "ended with 9"


def test_transactions_and_recalls_are_steps_and_other_messages_are_not() -> None:
    steps = steps_of(
        "M",
        [
            TransactionTrace(
                at_ms=1, topic="t", message_id="M", state="COMMIT_MESSAGE", from_check=True
            ),
            RecallTrace(at_ms=2, topic="t", message_id="M"),
            SendTrace(at_ms=3, topic="t", message_id="other"),
        ],
    )
    assert [(step.event, step.detail) for step in steps] == [
        ("transaction: COMMIT_MESSAGE", "after a check"),
        ("recalled", ""),
    ]


async def test_tracing_that_is_off_is_said_so() -> None:
    async with cluster() as running, AdminClient(running.namesrv_addr) as admin:
        with pytest.raises(UsageError, match="tracing is off: no broker has the topic RMQ_SYS_TR"):
            await trace_of(admin, "0" * 32)


async def test_the_trace_that_a_producer_wrote_is_found_by_the_message_id() -> None:
    async with cluster(trace_topic=True, default_queue_count=1) as running:
        async with Producer(running.namesrv_addr, config=ProducerConfig(trace=True)) as producer:
            receipt = await producer.send("orders", b"1")
        async with AdminClient(running.namesrv_addr) as admin:
            (step,) = await trace_of(admin, receipt.message_id)
            assert step.event == "sent"
            assert await trace_of(admin, "0" * 32) == []
