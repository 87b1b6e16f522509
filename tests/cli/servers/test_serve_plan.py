import pytest

from roquet.cli.servers.serve_plan import BROKERS_MAX, REPLICAS_MAX, broker_processes
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
