import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, orders

from roquet.admin import groups
from roquet.client.config import ProducerConfig
from roquet.client.producer import Producer
from roquet.dashboard.facts import dead_letters
from roquet.model.errors import ConnectFailed
from roquet.net.address import split_address
from roquet.net.channel import Channel
from roquet.wire.calls.send import SendBack
from roquet.wire.records.message_id import parse_offset_message_id

pytestmark = pytest.mark.virtual_time


@asynccontextmanager
async def letters(*masks: str) -> AsyncIterator[Site]:
    """Three dead letters of group `billing`, each with a body that is a number."""
    async with orders(*masks) as it:
        async with Producer(it.namesrv, config=ProducerConfig(clock=it.clock)) as producer:
            for number in range(3):
                receipt = await producer.send("orders", b"%d" % number, tag=HOSTILE)
                await give_up(it, receipt.offset_message_id)
                await it.clock.sleep(1_000)
        await it.clock.sleep(31_000)
        yield it


async def give_up(it: Site, message_id: str) -> None:
    """Have group `billing` give a message up, at the broker that stored it."""
    host_and_port, position = parse_offset_message_id(message_id)
    port = int.from_bytes(host_and_port[4:8], "big")
    address = next(one for one in it.running.broker_addrs if one.endswith(f":{port}"))
    channel = await Channel.connect(*split_address(address), clock=it.clock)
    await channel.call(SendBack(offset=position, group="billing", delay_level=-1))
    await channel.close()


async def test_groups_and_reasons_are_counted() -> None:
    async with letters() as it:
        assert ">billing</a>" in await it.browser.text("/dead-letters")
        html = await it.browser.text("/dead-letters/billing")
        assert "given up after" in html
        assert html.count('name="letter"') == 3
        assert not any(mark in html for mark in MARKS)
        facts = await it.browser.facts("/dead-letters/billing")
        assert (facts["total"], facts["reasons"][0]["letters"]) == (3, 3)


async def test_chosen_letters_are_sent_again_after_a_preview() -> None:
    async with letters() as it:
        found = (await it.browser.facts("/dead-letters/billing"))["letters"]
        places = [one["place"] for one in found[:2]]
        query = "&".join(f"letter={place}" for place in places)
        html = await it.browser.text(f"/dead-letters/billing/resend?{query}")
        assert "Send 2 dead letters again?" in html
        assert not any(mark in html for mark in MARKS)
        assert len((await it.browser.facts("/messages?topic=orders"))["rows"]) == 3
        response = await it.browser.post("/dead-letters/billing/resend", {"letter": places})
        assert "2 messages sent again" in response.text
        rows = (await it.browser.facts("/messages?topic=orders"))["rows"]
        assert sorted(row["preview"] for row in rows) == ["0", "1", "1", "2", "2"]


async def test_nothing_is_sent_for_letters_that_are_not_there() -> None:
    async with letters() as it:
        for form, status in (({}, 400), ({"letter": "broker-a/0/99"}, 404), ({"letter": "x"}, 400)):
            response = await it.browser.post("/dead-letters/billing/resend", form)
            assert response.status_code == status
        response = await it.browser.get("/dead-letters/<script>alert(1)<%2Fscript>")
        assert "<script>alert" not in response.text


async def test_an_export_has_all_letters_and_says_that_they_are_all() -> None:
    async with letters() as it:
        response = await it.browser.get("/dead-letters/billing/export")
        *lines, end = map(json.loads, response.text.splitlines())
        assert sorted(line["body"] for line in lines) == ["0", "1", "2"]
        assert {line["origin_topic"] for line in lines} == {"orders"}
        assert end == {"complete": True, "letters": 3}
        assert response.headers["content-disposition"].startswith("attachment; ")


async def test_an_export_that_broke_off_says_so_in_its_last_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object) -> AsyncIterator[object]:
        raise ConnectFailed("broker-a is away")
        yield

    monkeypatch.setattr("roquet.dashboard.facts.dead_letters.export", broken)
    async with letters() as it:
        response = await it.browser.get("/dead-letters/billing/export")
        end = json.loads(response.text)
        assert (end["complete"], end["letters"]) == (False, 0)
        assert "broker-a is away" in end["error"]


async def test_older_letters_are_on_further_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters.letters_of, "__kwdefaults__", {"before": (), "limit": 2})
    async with letters() as it:
        first = await it.browser.facts("/dead-letters/billing")
        assert [one["row"]["preview"] for one in first["letters"]] == ["2", "1"]
        html = await it.browser.text("/dead-letters/billing")
        assert "1 to 2 of 3" in html
        assert ">Older</a>" in html
        last = f"/dead-letters/billing?{first['next_page']}"
        assert [one["row"]["preview"] for one in (await it.browser.facts(last))["letters"]] == ["0"]
        html = await it.browser.text(last)
        assert "3 to 3 of 3" in html
        assert ">Newest</a>" in html
        assert ">Older</a>" not in html
        assert "all 3" in html
        wrong = await it.browser.get("/dead-letters/billing?before=x")
        assert wrong.status_code == 400


async def test_a_group_without_letters_says_so(site: Site) -> None:
    await groups.create(site.admin, "billing", {})
    assert "This group has no dead letters" in await site.browser.text("/dead-letters/billing")


async def test_rules_of_the_origin_hide_bodies_of_dead_letters() -> None:
    async with letters("orders") as it:
        assert "hidden by a rule" in await it.browser.text("/dead-letters/billing")
        response = await it.browser.get("/dead-letters/billing/export")
        lines = [json.loads(line) for line in response.text.splitlines()]
        assert [line["body"] for line in lines[:3]] == ["", "", ""]


async def test_without_dead_letters_the_page_says_so(site: Site) -> None:
    assert "No group has dead letters" in await site.browser.text("/dead-letters")
