import pytest
from tests.dashboard.conftest import Site

from roquet.admin import topics
from roquet.admin.group_info import GroupInfo, GroupQueueInfo
from roquet.admin.topics import TopicSettings
from roquet.dashboard.pages.topics import QueueOwner, TopicReader, queue_owners, topic_readers

pytestmark = pytest.mark.virtual_time


async def make(it: Site, name: str, queues: int = 4) -> None:
    await topics.create(it.admin, name, TopicSettings(read_queues=queues, write_queues=queues))


async def test_a_topic_is_created_and_shown(site: Site) -> None:
    form = {"name": "orders", "queues": "3", "type": "FIFO", "permission": "RW"}
    shown = await site.browser.post("/topics", form)
    assert shown.url.path == "/topics/orders"
    assert "created on broker-a, broker-b" in shown.text
    found = await topics.show(site.admin, "orders")
    assert [place.write_queues for place in found.places] == [3, 3]
    assert found.places[0].attributes == {"message.type": "FIFO"}
    assert "created on" not in await site.browser.text("/topics/orders")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({}, "name is missing"),
        ({"name": "a b"}, "name"),
        ({"name": "orders", "queues": "0"}, "from 1 to"),
        ({"name": "orders", "queues": "x"}, "not a whole number"),
        ({"name": "orders", "type": "ODD"}, "are possible"),
        ({"name": "orders", "permission": "X"}, "permission"),
    ],
)
async def test_a_wrong_form_creates_nothing(site: Site, form: dict[str, str], text: str) -> None:
    refused = await site.browser.post("/topics", form)
    assert refused.status_code == 400
    assert text in refused.text
    assert await topics.list_names(site.admin) == []


async def test_topics_are_searched_and_ordered(site: Site) -> None:
    for name in ("orders", "payments"):
        await make(site, name)
    await site.browser.dashboard.sampler.step()
    facts = await site.browser.facts("/topics?q=ord&sort=messages")
    assert [row["name"] for row in facts["topics"]["rows"]] == ["orders"]
    assert facts["topics"]["rows"][0]["sample"]["write_queues"] == 8
    every = await site.browser.facts("/topics?system=1")
    assert every["topics"]["total"] > 2
    for order in ("messages", "rate", "newest"):
        assert "payments" in await site.browser.text(f"/topics?sort={order}")


async def test_a_topic_that_is_not_there_is_said_so(site: Site) -> None:
    missing = await site.browser.get("/topics/none")
    assert missing.status_code == 404
    assert "no broker has a topic" in missing.text


async def test_a_change_is_previewed_and_then_made(site: Site) -> None:
    await make(site, "orders")
    preview = await site.browser.text("/topics/orders/update?permission=R&write_queues=2")
    assert "4 queues to write and 4 to read, then 2 and 4; permission RW, then R" in preview
    assert (await topics.show(site.admin, "orders")).places[0].permission == "RW"
    form = {"permission": "R", "write_queues": "2"}
    shown = await site.browser.post("/topics/orders/update", form)
    assert "changed on broker-a, broker-b" in shown.text
    assert (await topics.show(site.admin, "orders")).places[0].permission == "R"


async def test_a_change_of_nothing_is_refused(site: Site) -> None:
    await make(site, "orders")
    for query in ("", "?write_queues=0", "?write_queues=x", "?read_queues=99999"):
        assert (await site.browser.get(f"/topics/orders/update{query}")).status_code == 400
    for query in ("", "?queues=0"):
        assert (await site.browser.get(f"/topics/orders/resize{query}")).status_code == 400


async def test_a_resize_goes_on_in_the_background(site: Site) -> None:
    await make(site, "orders")
    assert "then 2" in await site.browser.text("/topics/orders/resize?queues=2")
    shown = await site.browser.post("/topics/orders/resize", {"queues": "2"})
    assert "the resize to 2 queues has begun" in shown.text
    again = await site.browser.post("/topics/orders/resize", {"queues": "3"})
    assert "is being resized to 2 queues" in again.text
    await site.clock.sleep(40_000)
    facts = await site.browser.facts("/topics/orders")
    assert (facts["resize"]["text"], facts["resize"]["is_over"]) == ("done", True)
    assert {place["read_queues"] for place in facts["topic"]["places"]} == {2}


async def test_a_topic_is_deleted_once_its_name_was_typed(site: Site) -> None:
    await make(site, "orders")
    assert "orders on broker-a, broker-b" in await site.browser.text("/topics/orders/delete")
    refused = await site.browser.post("/topics/orders/delete", {"typed_name": "order"})
    assert refused.status_code == 400
    shown = await site.browser.post("/topics/orders/delete", {"typed_name": "orders"})
    assert "topic orders is deleted" in shown.text
    assert await topics.list_names(site.admin) == []


def queue(topic: str, queue_id: int, lag: int, owners: list[str] | None) -> GroupQueueInfo:
    return GroupQueueInfo(
        topic=topic, broker="broker-a", queue_id=queue_id, owners=owners, committed=0, end=lag,
        lag=lag, fault=None,
    )  # fmt: skip


SAMPLE = {
    "billing": GroupInfo(
        name="billing", message_model=None, consume_type=None, lag=12, members=[], assignments=[],
        queues=[
            queue("orders", 0, 3, ["c1"]), queue("orders", 1, 4, []), queue("orders", 2, 0, None),
            queue("clicks", 0, 5, ["c2"]),
        ],
        problems=[],
    )
}  # fmt: skip


def test_the_lag_of_a_reader_is_that_of_the_topic_alone() -> None:
    assert topic_readers("orders", ["audit", "billing"], SAMPLE) == [
        TopicReader(group="audit"),
        TopicReader(group="billing", members=0, lag=7),
    ]


def test_queues_without_a_known_owner_are_left_out() -> None:
    assert queue_owners("orders", ["audit", "billing"], SAMPLE) == [
        QueueOwner(broker="broker-a", queue_id=0, group="billing", owners=["c1"])
    ]
