import pytest

from roquet.admin.group_info import GroupInfo, GroupMemberInfo, GroupQueueInfo
from roquet.dashboard.facts.balance import NEWCOMER, BalanceFacts, balance_input, forecast
from roquet.model.errors import UsageError
from roquet.rules.allocate import BROKER_DECIDED, STRATEGIES


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
