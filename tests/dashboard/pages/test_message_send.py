import pytest
from tests.dashboard.conftest import Site, open_site
from tests.dashboard.pages.orders_topic import address, send

pytestmark = pytest.mark.virtual_time


async def test_a_message_is_sent_as_the_form_says(orders_site: Site) -> None:
    form = {
        "topic": "orders",
        "tag": "new",
        "keys": "a lot\u3000B",
        "properties": "colour=green\r\n\r\nshape=a=b\u2028c",
        "notation": "text",
        "body": "one\r\ntwo",
    }
    response = await orders_site.browser.post("/messages/new", form)
    assert "sent " in response.text
    facts = await orders_site.browser.facts("/messages?topic=orders")
    (row,) = facts["rows"]
    assert (row["tag"], row["keys"]) == ("new", "a lot\u3000B")
    message = (await orders_site.browser.facts(row["address"]))["message"]
    assert message["body"] == "one\ntwo"
    assert message["properties"]["colour"] == "green"
    assert message["properties"]["shape"] == "a=b\u2028c"


async def test_the_audit_log_names_the_send_and_not_its_content(orders_site: Site) -> None:
    form = {"topic": "orders", "body": "secret text", "properties": "card=4111"}
    await orders_site.browser.post("/messages/new", form)
    (entry, *_) = orders_site.browser.dashboard.audit.entries
    assert (entry.action, entry.details["topic"]) == ("message.send", "orders")
    assert "secret text" not in repr(entry)
    assert "4111" not in repr(entry)


async def test_a_binary_message_is_sent_again_byte_for_byte(orders_site: Site) -> None:
    place = await send(orders_site, b"\x00\xff\r\n", tag="new", properties={"colour": "green"})
    html = await orders_site.browser.text(address("/messages/new", place))
    assert "00 ff 0d 0a" in html
    assert "colour=green" in html
    form = {"topic": "orders", "body": "00 ff 0d 0a", "notation": "hex"}
    await orders_site.browser.post("/messages/new", form)
    rows = (await orders_site.browser.facts("/messages?topic=orders"))["rows"]
    assert [row["size"] for row in rows] == [4, 4]


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"topic": "orders", "body": ""}, "the body is empty"),
        ({"topic": "", "body": "x"}, "topic is missing"),
        ({"topic": "orders", "body": "0", "notation": "hex"}, "the body is no hex"),
        ({"topic": "orders", "body": "0", "notation": "mp3"}, "is no notation"),
        ({"topic": "orders", "body": "x", "properties": "colour"}, "NAME=VALUE"),
        ({"topic": "orders", "body": "x", "properties": "KEYS=a"}, "KEYS"),
    ],
)
async def test_a_form_that_makes_no_message_sends_nothing(
    orders_site: Site, form: dict[str, str], error: str
) -> None:
    response = await orders_site.browser.post("/messages/new", form)
    assert response.status_code == 400
    assert error in response.text
    assert (await orders_site.browser.facts("/messages?topic=orders"))["rows"] == []


async def test_a_message_to_an_unknown_topic_creates_none(orders_site: Site) -> None:
    form = {"topic": "order", "body": "x"}
    response = await orders_site.browser.post("/messages/new", form)
    assert response.status_code == 404
    assert "no broker has a topic &#39;order&#39;" in response.text


async def test_a_read_only_dashboard_sends_nothing() -> None:
    async with open_site({"read_only": True}) as it:
        response = await it.browser.post("/messages/new", {"topic": "TBW102", "body": "x"})
        assert response.status_code == 403
        assert "read-only" in await it.browser.text("/messages/new")
