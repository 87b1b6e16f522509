import pytest
from tests.dashboard.conftest import OpenSite, Site

from roquet.admin import topics
from roquet.admin.topics import TopicSettings
from roquet.testing.clock import in_virtual_time


async def make(it: Site, name: str, queues: int = 4) -> None:
    await topics.create(it.admin, name, TopicSettings(read_queues=queues, write_queues=queues))


@in_virtual_time
async def test_a_topic_is_created_and_shown(open_site: OpenSite) -> None:
    async with open_site() as it:
        form = {"name": "orders", "queues": "3", "type": "FIFO", "permission": "RW"}
        shown = await it.browser.post("/topics", form)
        assert shown.url.path == "/topics/orders"
        assert "created on broker-a, broker-b" in shown.text
        found = await topics.show(it.admin, "orders")
        assert [place.write_queues for place in found.places] == [3, 3]
        assert found.places[0].attributes == {"message.type": "FIFO"}
        assert "created on" not in await it.browser.text("/topics/orders")


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
@in_virtual_time
async def test_a_wrong_form_creates_nothing(
    open_site: OpenSite, form: dict[str, str], text: str
) -> None:
    async with open_site() as it:
        refused = await it.browser.post("/topics", form)
        assert refused.status_code == 400
        assert text in refused.text
        assert await topics.list_names(it.admin) == []


@in_virtual_time
async def test_topics_are_searched_and_ordered(open_site: OpenSite) -> None:
    async with open_site() as it:
        for name in ("orders", "payments"):
            await make(it, name)
        await it.browser.dashboard.sampler.step()
        facts = await it.browser.facts("/topics?q=ord&sort=messages")
        assert [row["name"] for row in facts["topics"]["rows"]] == ["orders"]
        assert facts["topics"]["rows"][0]["sample"]["write_queues"] == 8
        every = await it.browser.facts("/topics?system=1")
        assert every["topics"]["total"] > 2
        for order in ("messages", "rate", "newest"):
            assert "payments" in await it.browser.text(f"/topics?sort={order}")


@in_virtual_time
async def test_a_topic_that_is_not_there_is_said_so(open_site: OpenSite) -> None:
    async with open_site() as it:
        missing = await it.browser.get("/topics/none")
        assert missing.status_code == 400
        assert "no broker has a topic" in missing.text


@in_virtual_time
async def test_a_change_is_previewed_and_then_made(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it, "orders")
        preview = await it.browser.text("/topics/orders/update?permission=R&write_queues=2")
        assert "4 queues to write and 4 to read, then 2 and 4; permission RW, then R" in preview
        assert (await topics.show(it.admin, "orders")).places[0].permission == "RW"
        form = {"permission": "R", "write_queues": "2"}
        shown = await it.browser.post("/topics/orders/update", form)
        assert "changed on broker-a, broker-b" in shown.text
        assert (await topics.show(it.admin, "orders")).places[0].permission == "R"


@in_virtual_time
async def test_a_change_of_nothing_is_refused(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it, "orders")
        for query in ("", "?write_queues=0", "?write_queues=x", "?read_queues=99999"):
            assert (await it.browser.get(f"/topics/orders/update{query}")).status_code == 400
        for query in ("", "?queues=0"):
            assert (await it.browser.get(f"/topics/orders/resize{query}")).status_code == 400


@in_virtual_time
async def test_a_resize_goes_on_in_the_background(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it, "orders")
        assert "then 2" in await it.browser.text("/topics/orders/resize?queues=2")
        shown = await it.browser.post("/topics/orders/resize", {"queues": "2"})
        assert "the resize to 2 queues has begun" in shown.text
        again = await it.browser.post("/topics/orders/resize", {"queues": "3"})
        assert "is being resized to 2 queues" in again.text
        await it.clock.sleep(40_000)
        facts = await it.browser.facts("/topics/orders")
        assert (facts["resize"]["text"], facts["resize"]["is_over"]) == ("done", True)
        assert {place["read_queues"] for place in facts["topic"]["places"]} == {2}


@in_virtual_time
async def test_a_topic_is_deleted_once_its_name_was_typed(open_site: OpenSite) -> None:
    async with open_site() as it:
        await make(it, "orders")
        assert "orders on broker-a, broker-b" in await it.browser.text("/topics/orders/delete")
        refused = await it.browser.post("/topics/orders/delete", {"typed_name": "order"})
        assert refused.status_code == 400
        shown = await it.browser.post("/topics/orders/delete", {"typed_name": "orders"})
        assert "topic orders is deleted" in shown.text
        assert await topics.list_names(it.admin) == []
