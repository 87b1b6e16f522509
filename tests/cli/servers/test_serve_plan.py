import shutil

import pytest

from roquet.cli.servers.serve_plan import (
    BROKERS_MAX,
    REPLICAS_MAX,
    broker_processes,
    controller_plan,
)
from roquet.model.errors import UsageError
from roquet.net.address import PORT_MAX


def test_each_master_is_followed_by_its_replicas() -> None:
    plan = broker_processes(2, 2, None, 10911)
    assert [(each.name, each.broker_id, each.role, each.port) for each in plan] == [
        ("broker-a", 0, "SYNC_MASTER", 10911),
        ("broker-a-1", 1, "SLAVE", 11911),
        ("broker-a-2", 2, "SLAVE", 12911),
        ("broker-b", 0, "SYNC_MASTER", 10921),
        ("broker-b-1", 1, "SLAVE", 11921),
        ("broker-b-2", 2, "SLAVE", 12921),
    ]
    assert plan[0].environ == {
        "ROQUET_BROKER_ROLE": "SYNC_MASTER",
        "ROQUET_BROKER_ID": "0",
        "ROQUET_IN_SYNC_REPLICAS": "2",
        "ROQUET_HA_PORT": "10912",
    }


def test_a_master_that_waits_for_no_replica_is_asynchronous() -> None:
    master, replica = broker_processes(1, 1, 1, 10911)
    assert (master.role, master.in_sync, replica.role) == ("ASYNC_MASTER", 1, "SLAVE")
    assert broker_processes(1, 2, 3, 10911)[0].in_sync == 3


def test_without_replicas_settings_say_the_role() -> None:
    (master,) = broker_processes(1, 0, None, 10911)
    assert (master.role, master.environ) == (None, {})


def test_no_two_processes_want_one_port() -> None:
    plan = broker_processes(BROKERS_MAX, REPLICAS_MAX, None, 10911)
    ports = [port for each in plan for port in (each.port - 2, each.port, each.port + 1)]
    assert len(plan) == BROKERS_MAX * (1 + REPLICAS_MAX)
    assert len(set(ports)) == len(ports)
    assert max(ports) <= PORT_MAX


def test_plans_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="1 broker with 2 replicas each: ports up to 65912"):
        broker_processes(1, 2, None, 63_911)
    with pytest.raises(UsageError, match="3 brokers: ports up to 65541 are needed, beyond 65535"):
        broker_processes(3, 0, None, 65_520)
    with pytest.raises(UsageError, match="--in-sync 2: there are no replicas; add --replicas"):
        broker_processes(1, 0, 2, 10911)
    with pytest.raises(UsageError, match="--in-sync 3: with 1 replica there are 2 logs"):
        broker_processes(1, 1, 3, 10911)


def test_one_controller_keeps_its_state_in_a_file() -> None:
    plan = controller_plan(1, 2, 9878, "10.0.0.1")
    assert plan is not None
    assert plan.etcd is None
    assert [(one.name, one.port) for one in plan.processes] == [("controller", 9878)]
    assert plan.addresses == ("10.0.0.1:9878",)


def test_three_controllers_share_an_etcd_whose_ports_are_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    plan = controller_plan(3, 1, 9878, "h")
    assert plan is not None
    assert [one.name for one in plan.processes] == ["controller-1", "controller-2", "controller-3"]
    assert plan.addresses == ("h:9878", "h:9888", "h:9898")
    assert plan.etcd_address == "127.0.0.1:9879"
    command = plan.etcd_command("/data/etcd")
    assert command[0] == "/bin/etcd"
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--listen-client-urls"] == "http://127.0.0.1:9879"
    assert options["--initial-cluster"] == "roquet=http://127.0.0.1:9880"
    assert options["--data-dir"] == "/data/etcd"


def test_without_etcd_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match=r"--controllers 3: .* apt-get install etcd-server"):
        controller_plan(3, 1, 9878, "h")
    assert controller_plan(1, 1, 9878, "h") is not None


def test_controllers_that_cannot_be_are_refused() -> None:
    assert controller_plan(0, 0, 9878, "h") is None
    with pytest.raises(UsageError, match="there is nobody to elect; add --replicas"):
        controller_plan(1, 0, 9878, "h")
    with pytest.raises(UsageError, match="--controller-port 0: a port from 1 to 65535 is needed"):
        controller_plan(1, 1, 0, "h")


def test_the_highest_port_that_controllers_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert controller_plan(1, 1, 65_535, "h") is not None
    assert controller_plan(3, 1, 65_515, "h") is not None
    needed = "--controller-port 65516: 3 controllers: ports up to 65536 are needed, beyond 65535"
    with pytest.raises(UsageError, match=needed):
        controller_plan(3, 1, 65_516, "h")
