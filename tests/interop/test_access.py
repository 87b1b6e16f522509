"""The genuine mqadmin 5.5.0 manages the users and policies of our broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import genuine
from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

pytestmark = pytest.mark.interop

ROOT = Credentials(access_key="root", secret_key="rootsecret")

Mqadmin = Callable[..., str]


@pytest.fixture
def secured() -> Iterator[BlockingCluster]:
    with BlockingCluster(
        authentication_enabled=True, authorization_enabled=True, initial_user=ROOT
    ) as running:
        yield running


@pytest.fixture
def mqadmin(java: None, secured: BlockingCluster, tmp_path: Path) -> Mqadmin:
    """Runs a command against the one broker, as the super user."""
    folder = tmp_path / "conf"
    folder.mkdir()
    keys = f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n"
    (folder / "tools.yml").write_text(keys)

    def run(*words: str) -> str:
        options = [f"-Drocketmq.home.dir={tmp_path}"]
        start = "tools.command.MQAdminStartup"
        address = ("-b", secured.broker_addrs[0])
        command = genuine.java(start, *words, *address, heap="128m", options=options)
        return genuine.run(command, seconds=120, home=tmp_path)

    return run


def test_its_commands_on_users_and_policies_work(
    mqadmin: Mqadmin, secured: BlockingCluster
) -> None:
    made = mqadmin("createUser", "-u", "alice", "-p", "alicesecret", "-t", "Normal")
    assert "create user to" in made
    rights = ("-r", "Topic:orders", "-a", "Pub,Sub", "-d", "Allow", "-i", "10.0.0.0/8")
    assert "create acl to" in mqadmin("createAcl", "-s", "User:alice", *rights)
    listed = mqadmin("listUser")
    assert "alicesecret" in listed
    assert "Normal" in listed
    shown = mqadmin("listAcl", "-s", "alice")
    for word in ("User:alice", "Topic:orders", "Pub", "10.0.0.0/8", "Allow"):
        assert word in shown
