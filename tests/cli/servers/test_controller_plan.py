import shutil

import pytest

from roquet.cli.servers.controller_plan import controller_plan
from roquet.model.errors import UsageError


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
