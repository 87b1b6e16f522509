"""The genuine mqadmin 5.5.0 asks and orders our controller and three brokers under it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.interop.elected_group import (
    CLUSTER,
    GROUP,
    SMALL,
    add_brokers,
    in_sync,
    master_of,
    our_controller,
    role_of,
    wait_until,
)
from tests.interop.test_mqadmin import MqAdmin

from roquet.broker.app import BrokerServer
from roquet.client.blocking import Producer
from roquet.testing.cluster import BlockingCluster

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]

BROKERS = 3
MESSAGES = 20


class OperatedGroup(NamedTuple):
    """Three brokers of ours under our controller, and the mqadmin that asks them."""

    running: BlockingCluster
    controller: str
    mqadmin: MqAdmin

    def say(self, words: str) -> str:
        """What a command prints."""
        return self.mqadmin(f"{words} -n {self.running.namesrv_addr}")

    def order(self, words: str) -> str:
        """What a command to the controller prints."""
        return self.say(f"{words} -a {self.controller}")

    @property
    def master(self) -> BrokerServer:
        """The broker that leads; waits for the whole set."""
        wait_until(lambda: in_sync(master_of(self.running.brokers)) == BROKERS, "not in sync")
        master = master_of(self.running.brokers)
        assert master is not None
        return master

    @property
    def replicas(self) -> list[BrokerServer]:
        """The brokers that follow it."""
        master = self.master
        return [server for server in self.running.brokers if server is not master]


@pytest.fixture(scope="module")
def group(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedGroup]:
    folder = tmp_path_factory.mktemp("group")
    mqadmin = MqAdmin(tmp_path_factory.mktemp("mqadmin"))
    try:
        with (
            BlockingCluster(0, 1, folder, **SMALL) as running,
            our_controller(running) as controller,
        ):
            add_brokers(running, folder, controller.address, BROKERS)
            operated = OperatedGroup(running, controller.address, mqadmin)
            assert operated.master is not None
            with Producer(running.namesrv_addr, group="operated") as producer:
                for number in range(MESSAGES):
                    assert producer.send("Operated", b"%d" % number).ok
            yield operated
    finally:
        mqadmin.close()


def fields(text: str) -> dict[str, str]:
    """Values of lines like `#MasterEpoch  1`, by name; the last one of each name."""
    return {name: value.strip() for name, value in re.findall(r"(?m)^#(\w+):?[ \t]+(.*)$", text)}


def ids_of(text: str, kind: str) -> set[int]:
    """Broker ids of replicas of a kind, all of them alive."""
    found = re.findall(rf"(?m)^{kind}:\s+ReplicaIdentity\{{(.*)\}}", text)
    assert all("alive=true" in each for each in found), found
    return {int(re.findall(r"brokerId=(\d+)", each)[0]) for each in found}


def test_get_controller_metadata_names_the_leader(group: OperatedGroup) -> None:
    said = fields(group.order("getControllerMetaData"))
    assert said["ControllerGroup"] == "DefaultControllerGroup"
    assert said["ControllerLeaderAddress"] == group.controller
    assert said["ControllerLeaderId"] == group.controller, "the id is the address by default"
    assert said["Peer"] == f"{group.controller}:{group.controller}"


@pytest.mark.parametrize("chosen_by", [f"-b {GROUP}", f"-c {CLUSTER}"])
def test_get_sync_state_set_names_master_and_members(group: OperatedGroup, chosen_by: str) -> None:
    role = role_of(group.master)
    text = group.order(f"getSyncStateSet {chosen_by}")
    said = fields(text)
    assert said["brokerName"] == GROUP
    assert said["MasterBrokerId"] == str(own_id(group.master))
    assert said["MasterAddr"] == group.master.address
    assert said["MasterEpoch"] == str(role.epoch)
    assert said["SyncStateSetNums"] == "3"
    assert ids_of(text, "InSyncReplica") == {1, 2, 3}
    assert not ids_of(text, "NotInSyncReplica")


@pytest.mark.parametrize("chosen_by", [f"-b {GROUP}", f"-c {CLUSTER}"])
def test_get_broker_epoch_lists_the_epochs_of_each_log(
    group: OperatedGroup, chosen_by: str
) -> None:
    end = group.master.broker.log.store.end_position
    text = group.say(f"getBrokerEpoch {chosen_by}")
    addresses = set(re.findall(r"#brokerAddr\s+(\S+)", text))
    assert addresses == {server.address for server in group.running.brokers}
    assert set(re.findall(r"#brokerName\s+(\S+)", text)) == {GROUP}
    epochs = re.findall(r"epoch=(\d+), startOffset=(\d+), endOffset=(\d+)", text)
    assert epochs == [("1", "0", str(end))] * BROKERS


def test_ha_status_of_a_master_lists_its_replicas(group: OperatedGroup) -> None:
    text = group.say(f"haStatus -b {group.master.address}")
    said, end = fields(text), group.master.broker.log.store.end_position
    assert said["MasterAddr"] == group.master.address
    assert said["MasterCommitLogMaxOffset"] == str(end)
    assert (said["SlaveNum"], said["InSyncSlaveNum"]) == ("2", "2")
    rows = re.findall(r"(?m)^(127\.\S+)\s+(\d+)\s+(\d+)\s+(\S+)\s+(OK|Fall Behind)\s+(\d+)", text)
    assert len(rows) == 2
    assert {(ack, behind, status) for _, ack, behind, _, status, _ in rows} == {
        (str(end), "0", "OK")
    }


def test_ha_status_of_a_replica_names_its_master(group: OperatedGroup) -> None:
    replica, master = group.replicas[0], group.master
    said = fields(group.say(f"haStatus -b {replica.address}"))
    port = master.broker.replication.stream_server.port
    assert said["MasterAddr"] == f"127.0.0.1:{port}"
    assert said["CommitLogMaxOffset"] == str(master.broker.log.store.end_position)
    assert re.match(r"20\d\d", said["LastReadTime"]), said


def test_ha_status_of_a_cluster_asks_its_masters(group: OperatedGroup) -> None:
    assert fields(group.say(f"haStatus -c {CLUSTER}"))["MasterAddr"] == group.master.address


def test_elect_master_makes_the_chosen_broker_lead(group: OperatedGroup) -> None:
    before, chosen = role_of(group.master), group.replicas[-1]
    number = own_id(chosen)
    text = group.order(f"electMaster -b {number} -bn {GROUP} -c {CLUSTER}")
    said = fields(text)
    assert (said["ClusterName"], said["BrokerName"]) == (CLUSTER, GROUP)
    assert said["BrokerMasterAddr"] == chosen.address
    assert said["MasterEpoch"] == str(before.epoch + 1)
    members = re.findall(r"#Broker\s+(\d+)\s+(\S+)", text)
    assert {(own_id(server), server.address) for server in group.running.brokers} == {
        (int(number), address) for number, address in members
    }
    wait_until(lambda: master_of(group.running.brokers) is chosen, "the chosen one does not lead")
    assert group.master is chosen, "the others follow it"
    with Producer(group.running.namesrv_addr, group="operated") as producer:
        assert producer.send("Operated", b"after the election").ok


def test_elect_master_of_an_unknown_broker_is_refused(group: OperatedGroup) -> None:
    master = group.master
    text = group.order(f"electMaster -b 9 -bn {GROUP} -c {CLUSTER}")
    assert "MQBrokerException: CODE: 201" in text
    assert group.master is master


def test_clean_broker_metadata_removes_a_dead_broker_and_no_living_one(
    group: OperatedGroup,
) -> None:
    victim = group.replicas[0]
    number = own_id(victim)
    words = f"cleanBrokerMetadata -b {number} -bn {GROUP} -c {CLUSTER}"
    assert "CODE: 2009" in group.order(words)
    group.running.stop_broker(list(group.running.brokers).index(victim))
    left = [server for server in group.running.brokers if server is not victim]
    wait_until(lambda: in_sync(master_of(left)) == 2, "the dead one is in the set")
    assert f"clear broker {GROUP} metadata from controller success" in group.order(words)
    text = group.order(f"getSyncStateSet -b {GROUP}")
    assert ids_of(text, "InSyncReplica") == {1, 2, 3} - {number}
    assert f"brokerId={number}," not in text


def own_id(server: BrokerServer) -> int:
    """The id that the controller gave a broker."""
    return int(re.findall(r"\d+", identity(server))[-1])


def identity(server: BrokerServer) -> str:
    """The broker's identity file."""
    assert isinstance(server.config.store_dir, Path)
    return (server.config.store_dir / "brokerIdentity").read_text("utf-8")
