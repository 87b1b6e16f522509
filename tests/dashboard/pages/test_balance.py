from urllib.parse import quote

import pytest
from tests.dashboard.conftest import Site
from tests.dashboard.pages.orders_topic import HOSTILE, MARKS, orders, send

from roquet.admin import groups
from roquet.admin.group_info import GroupInfo, GroupMemberInfo, GroupQueueInfo
from roquet.client.config import ConsumerConfig
from roquet.client.push import PushConsumer
from roquet.dashboard.pages.balance import NEWCOMER, BalanceFacts, balance_input, cells, forecast
from roquet.model.errors import UsageError
from roquet.rules.allocate import BROKER_DECIDED, STRATEGIES

pytestmark = pytest.mark.virtual_time


def member(it: Site, instance: str | None = None) -> PushConsumer:
    config = ConsumerConfig(clock=it.clock, instance=instance)
    return PushConsumer(it.namesrv, group="billing", topic="orders", config=config)


def test_the_picture_numbers_the_owners_of_queues() -> None:
    picture = cells(facts(group(), "c2"))
    assert picture[""] == [0, 0, 0, 0, None, None, None, None]
    assert picture["AVG"] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_member_that_joins_has_a_colour_of_its_own() -> None:
    assert set(cells(facts(group(), joins=True))["AVG"]) == {0, 1, 2, 3}


async def test_a_group_is_chosen_and_all_strategies_are_compared() -> None:
    async with orders() as it, member(it) as one, member(it) as two:
        await send(it, b"x")
        await it.clock.sleep(30_000)
        assert '<option value="billing">' in await it.browser.text("/balance")
        html = await it.browser.text("/balance?group=billing")
        assert "LAG_WEIGHTED" in html
        assert "2 queues of orders, 2 members" in html
        leaves = quote(two.client_id)
        shown = await it.browser.facts(f"/balance?group=billing&topic=orders&change={leaves}")
        assert shown["facts"]["members_after"] == [one.client_id]
        by_name = {strategy["name"]: strategy for strategy in shown["facts"]["strategies"]}
        assert by_name["AVG"]["after"] == {one.client_id: ["broker-a:0", "broker-b:0"]}
        assert by_name["AVG"]["moves"] == 1
        joined = await it.browser.facts("/balance?group=billing&change=%2B")
        assert len(joined["facts"]["members_after"]) == 3


async def test_groups_are_listed_to_choose_from(orders_site: Site) -> None:
    await groups.create(orders_site.admin, "billing", {})
    link = '<a href="/balance?group=billing">billing</a>'
    assert link in await orders_site.browser.text("/balance")
    assert link in (await orders_site.browser.get("/balance?group=nobody")).text
    assert link not in await orders_site.browser.text("/balance?q=shipping")
    await orders_site.browser.dashboard.sampler.step()
    assert 'data-label="Members">0</td>' in await orders_site.browser.text("/balance?q=bill")


async def test_a_group_that_cannot_be_balanced_says_why(orders_site: Site) -> None:
    response = await orders_site.browser.get("/balance?group=nobody")
    assert response.status_code == 404
    assert "unknown to every broker" in response.text
    response = await orders_site.browser.get("/balance?group=<script>alert(1)</script>")
    assert "<script>alert" not in response.text


async def test_what_a_client_calls_itself_is_escaped() -> None:
    async with orders() as it, member(it, HOSTILE):
        await send(it, b"x")
        await it.clock.sleep(30_000)
        for address in ("/balance?group=billing", "/balance?group=billing&change=%2B"):
            html = await it.browser.text(address)
            assert "alert(1)" in html
            assert not any(mark in html for mark in MARKS)


def group(members: int = 3, queues: int = 8, lag: int = 1) -> GroupInfo:
    """A group whose first member owns the first half of the queues, and nobody the rest."""
    return GroupInfo(
        name="billing",
        message_model="CLUSTERING",
        consume_type="CONSUME_PASSIVELY",
        lag=0,
        members=[
            GroupMemberInfo(
                client_id=f"c{number}",
                address="127.0.0.1:1",
                language=None,
                version=0,
                subscriptions={"orders": "*"},
                strategy="AVG",
            )
            for number in range(members)
        ],
        queues=[
            GroupQueueInfo(
                topic="orders",
                broker="broker-a",
                queue_id=number,
                owners=["c0"] if number < queues // 2 else None,
                committed=0,
                end=number,
                lag=number * lag,
                fault=None,
            )
            for number in range(queues)
        ],
        assignments=[],
        problems=[],
    )


def facts(info: GroupInfo, leaves: str | None = None, *, joins: bool = False) -> BalanceFacts:
    return forecast(info, ["orders"], balance_input(info, "orders"), leaves, joins=joins)


def test_every_strategy_gives_all_queues_to_the_members() -> None:
    shown = facts(group())
    assert {one.name for one in shown.strategies} == {*STRATEGIES, *BROKER_DECIDED}
    for one in shown.strategies:
        assert sum(map(len, one.shares.values())) == 8, one.name
        assert one.after == one.shares
        assert one.moves == 0
    assert [one.name for one in shown.strategies if one.is_used] == ["AVG"]


def test_moves_are_counted_from_the_owners_that_brokers_report() -> None:
    moves = {one.name: one.moves_now for one in facts(group()).strategies}
    assert moves["AVG"] == 1  # c0 has four queues and keeps three
    assert moves["STICKY"] == 1
    assert moves["AVG_BY_CIRCLE"] == 2


def test_the_queues_of_a_member_that_leaves_go_to_the_others() -> None:
    shown = facts(group(), "c2")
    assert shown.change == "c2 leaves"
    assert shown.members_after == ["c0", "c1"]
    by_name = {one.name: one for one in shown.strategies}
    assert by_name["STICKY"].moves == by_name["STICKY"].fewest == 2
    assert by_name["AVG"].moves > 2
    assert all("c2" not in one.after for one in shown.strategies)


def test_a_member_that_joins_gets_its_share() -> None:
    shown = facts(group(), joins=True)
    assert shown.change == "a member joins"
    sticky = next(one for one in shown.strategies if one.name == "STICKY")
    assert len(sticky.after[NEWCOMER]) == 2
    assert (sticky.least, sticky.most) == (2, 2)


def test_lag_weighted_shares_are_as_even_as_the_lag_allows() -> None:
    shown = facts(group(members=2, queues=4, lag=100_000))  # 0, 100,000, 200,000 and 300,000
    weighted = next(one for one in shown.strategies if one.name == "LAG_WEIGHTED")
    assert (weighted.least_lag, weighted.most_lag) == (300_000, 300_000)


@pytest.mark.parametrize(
    ("members", "leaves", "error"),
    [(1, "c0", "nobody would be left"), (2, "c9", "no member"), (0, None, "no member of group")],
)
def test_changes_that_cannot_be_are_refused(members: int, leaves: str | None, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        facts(group(members), leaves)
