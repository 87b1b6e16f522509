import json
from unittest.mock import AsyncMock

import msgspec
import pytest
from tests.cli.running import invoke, must_fail, roquet

from roquet.admin import controllers, elect, retire
from roquet.admin.controllers import GroupStatus, ReplicaMember
from roquet.admin.elect import ElectedMaster
from roquet.admin.retire import RetiredBroker
from roquet.cli.admin import handover
from roquet.model.errors import RoquetError, UsageError


def member(broker_id: int, log_end: int | None, *, is_in_sync: bool = True) -> ReplicaMember:
    return ReplicaMember(
        broker_id=broker_id,
        address=f"h:{broker_id}",
        is_master=broker_id == 1,
        is_in_sync=is_in_sync,
        is_alive=True,
        log_end=log_end,
    )


def test_a_name_without_a_controller_elects_nobody(namesrv: str) -> None:
    must_fail(
        UsageError, "broker-a has no controller", "cluster", "elect", "broker-a", "-n", namesrv
    )
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("cluster", "elect", "broker-x", "-n", namesrv)
    with pytest.raises(UsageError, match="--controller: 'here' is not"):
        roquet("cluster", "elect", "broker-a", "--controller", "here", "-n", namesrv)
    with pytest.raises(RoquetError, match=r"no controller leads: 127.0.0.1:1: "):
        roquet("cluster", "elect", "broker-a", "--controller", "127.0.0.1:1", "-n", namesrv)


def test_a_broker_that_must_not_be_stopped_is_an_error(namesrv: str) -> None:
    with pytest.raises(RoquetError, match=r"broker-a: the master at .* must not be stopped yet"):
        roquet("cluster", "retire", "broker-a", "--wait", "0", "-n", namesrv)
    with pytest.raises(UsageError, match="there is no broker 'broker-x'"):
        roquet("cluster", "retire", "broker-x", "-n", namesrv)


def test_before_an_unclean_election_it_is_said_what_is_lost() -> None:
    two = member(2, 800, is_in_sync=False)
    found = GroupStatus(
        broker="b", controller="c:1", epoch=3, members=[member(1, 12_000), two, member(3, None)]
    )
    assert handover.losses(found, two) == [
        "b, epoch 3: what the logs of its brokers have",
        "  1 at h:1, master, in sync: 12,000 bytes",
        "  2 at h:2, replica, not in sync: 800 bytes",
        "  3 at h:3, replica, in sync: not known",
        "messages that were acknowledged, and that 2 at h:2 lacks, are lost, 11,200 bytes by what"
        " is known",
    ]
    assert handover.losses(found, None)[-1] == (
        "messages that were acknowledged, and that whoever is elected lacks, are lost"
    )


def test_a_broker_that_may_be_stopped_is_named_with_who_leads() -> None:
    retired = RetiredBroker(broker="b", address="h:1", broker_id=1, master="h:2", epoch=4)
    assert handover.retired_line(retired) == "b: 1 at h:1 may be stopped now; h:2 leads in epoch 4"
    alone = RetiredBroker(broker="b", address="h:1", was_master=True)
    assert handover.retired_line(alone) == (
        "b: h:1 may be stopped now; it takes no messages, `roquet broker set b permission=6` takes"
        " that back"
    )
    for lone in (alone, RetiredBroker(broker="b", address="h:2", broker_id=2)):
        replica = msgspec.structs.replace(lone, address="h:2", was_master=False)
        assert handover.retired_line(replica).endswith("h:2 may be stopped now; nobody leads")
    fixed = RetiredBroker(broker="b", address="h:2", master="h:1")
    assert handover.retired_line(fixed) == "b: h:2 may be stopped now; h:1 leads"


def test_losses_are_asked_about_before_an_unclean_election(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [member(1, 900), member(2, 800, is_in_sync=False)]
    found = GroupStatus(broker="b", controller="c:1", epoch=3, members=members)
    result = ElectedMaster(broker="b", broker_id=2, address="h:2", epoch=4, is_new=True)
    monkeypatch.setattr(controllers, "group", AsyncMock(return_value=found))
    elections = AsyncMock(return_value=result)
    monkeypatch.setattr(elect, "elect", elections)
    command = ("cluster", "elect", "b", "--to", "2", "--unclean", "-n", namesrv)
    refused = invoke(*command, typed="n\n")
    assert refused.exit_code == 1
    assert "2 at h:2 lacks, are lost, 100 bytes by what is known" in refused.output
    elections.assert_not_awaited()
    agreed = roquet(*command, "--yes")
    assert agreed.stdout.endswith("b: 2 at h:2 leads in epoch 4, 1 at h:1 before\n")
    shown = json.loads(roquet(*command, "--yes", "--json").stdout)
    assert (shown["unclean"], shown["epoch"], shown["before"]["epoch"]) == (True, 4, 3)


def test_a_member_of_the_set_with_a_shorter_log_may_lack_acknowledged_messages() -> None:
    members = [member(1, 900), member(2, 800), member(3, 900), member(4, None)]
    found = GroupStatus(broker="b", controller="c:1", epoch=3, members=members)
    lacking = [handover.may_lack_messages(found, one) for one in members]
    assert lacking == [False, True, False, True]
    assert handover.may_lack_messages(found, None)


def test_a_broker_that_goes_for_good_is_removed_after_it_may_be_stopped(
    namesrv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired = RetiredBroker(broker="b", address="h:1", broker_id=1, master="h:2", epoch=4)
    remove = AsyncMock()
    monkeypatch.setattr(retire, "retire", AsyncMock(return_value=retired))
    monkeypatch.setattr(retire, "remove", remove)
    result = roquet("cluster", "retire", "b", "-n", namesrv)
    assert result.stdout == "b: 1 at h:1 may be stopped now; h:2 leads in epoch 4\n"
    remove.assert_not_awaited()
    result = roquet("cluster", "retire", "b", "--for-good", "--json", "-n", namesrv)
    assert json.loads(result.stdout)["master"] == "h:2"
    assert result.stderr == "b: 1 is removed\n"
    remove.assert_awaited_once()
    fixed = RetiredBroker(broker="b", address="h:2", master="h:1")
    monkeypatch.setattr(retire, "retire", AsyncMock(return_value=fixed))
    result = roquet("cluster", "retire", "b#1", "--for-good", "-n", namesrv)
    assert result.stderr == "it has no id from a controller: nothing is to be removed\n"
