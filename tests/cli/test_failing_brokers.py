"""Every command that asks brokers says it when they refuse, are away or do not answer in time."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from roquet.cli.main import app
from roquet.model.errors import CallRefused, CallTimeout, ConnectFailed, RoquetError
from roquet.net.pool import ChannelPool
from roquet.store.store import Draft
from roquet.testing.cluster import BlockingCluster
from roquet.wire.calls.admin.group import GetConnections, GetConsumeStats
from roquet.wire.calls.admin.stats import GetTopicStats
from roquet.wire.codes import ResponseCode

FAILURES: Mapping[str, RoquetError] = {
    "refuses": CallRefused(ResponseCode.NO_PERMISSION, "bob may not do that"),
    "is away": ConnectFailed("cannot connect to it"),
    "is slow": CallTimeout("no reply within 3000 ms"),
}

ID = "7F0000010000ABCD0000000000000000"

COMMANDS: Mapping[str, str] = {
    "produce": "orders -m x",
    "consume": "orders --count 1",
    "dlq ls": "",
    "dlq show": "billing",
    "dlq resend": "billing --all --yes",
    "set-aside ls": "",
    "set-aside retry": "--all --yes",
    "group show": "billing",
    "group ls": "",
    "group create": "shipping",
    "group delete": "billing --yes",
    "group fork": "billing --at first --as replay --yes",
    "group reset": "billing --topic orders --to first --yes",
    "topic ls": "",
    "topic show": "orders",
    "topic create": "fresh",
    "topic update": "orders --perm RW",
    "topic resize": "orders 2 --settle 0 --yes",
    "topic delete": "orders --yes",
    "message show": f"{ID} --topic orders",
    "message find": "orders --key k",
    "message at": "orders broker-a 0 0",
    "message why-late": f"{ID} --topic orders",
    "cluster show": "",
    "cluster replicas": "",
    "cluster health": "",
    "cluster elect": "broker-a --yes",
    "cluster retire": "broker-a --wait 0",
    "acl export": "-",
    "acl import": "access.json --yes",
    "acl why": "bob Pub Topic:orders",
    "acl user list": "",
    "acl user create": "carol --generate",
    "acl user update": "bob --disable",
    "acl user delete": "bob --yes",
    "acl policy list": "",
    "acl policy create": "bob --resource Topic:orders --action pub",
    "acl policy update": "bob --resource Topic:orders --action pub",
    "acl policy delete": "bob --yes",
    "broker settings": "broker-a",
    "broker set": "broker-a slaveReadEnable=true --yes",
    "broker drain": "broker-a --wait 0",
}
"""A command line of each command that asks brokers."""

WITHOUT_BROKERS = {
    *("dev", "serve", "controller", "dashboard", "broker", "namesrv", "proxy"),  # are servers
    *("dump", "check", "backup", "restore", "health", "support bundle"),  # of this machine
    *("demo", "lab run", "lab report", "lab scenarios"),
    "balance",
    "mirror",  # asks two clusters: tests/cli/admin/test_mirror.py
    *("namesrv settings", "namesrv set"),  # ask name servers
    *("acl migrate", "lake query"),  # of files
    *("profile set", "profile ls", "profile show", "profile use", "profile rm"),  # of a file
    *("spark archive", "spark lag", "spark audit", "spark materialize", "spark replay"),
    *("spark repair", "spark maintain"),  # jobs of Spark, with tests of their own
}

LOOKS = {
    *("dlq ls", "group show", "group ls", "topic ls", "topic show", "message find", "cluster show"),
    *("cluster replicas", "cluster health", "set-aside ls"),
}
"""Commands that show what all brokers say."""


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below and (not path or not command.invoke_without_command):
        pass
    elif path:
        yield " ".join(path)
    for name, one in (below or {}).items():
        yield from leaves(one, (*path, name))


def test_every_command_is_walked_or_asks_no_broker() -> None:
    assert {*COMMANDS} | WITHOUT_BROKERS == {*leaves(get_command(app))}


@pytest.fixture(scope="module")
def running() -> Iterator[BlockingCluster]:
    """Two brokers; each has a topic, a group, a dead letter and a message that is set aside."""
    with BlockingCluster(brokers=2) as cluster:
        for line in (
            "topic create orders --queues 1",
            "topic create %DLQ%billing --queues 1",
            "group create billing",
            "produce orders --key k -m x --count 4",
            "produce %DLQ%billing -m x --count 4",
        ):
            assert Ended(line, cluster.namesrv_addr).code == 0, line

        async def set_aside() -> None:
            for broker in cluster.brokers:
                draft = Draft("rmq_sys_wheel_timer", 0, b"x", b"")
                broker.broker.log.ingest.append_draft(draft)

        cluster.run(set_aside())
        while Ended("set-aside ls", cluster.namesrv_addr).stdout.count("\n") < 2:
            time.sleep(0.02)
        yield cluster


@pytest.fixture
def fail(running: BlockingCluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let brokers fail: `fail("refuses", 1)`."""
    call = ChannelPool.call

    def begin(how: str, *numbers: int) -> None:
        failing = {running.broker_addrs[number] for number in numbers}

        async def failing_call(pool: ChannelPool, address: str, *rest: Any, **more: Any) -> Any:
            if address in failing:
                raise FAILURES[how]
            return await call(pool, address, *rest, **more)

        monkeypatch.setattr(ChannelPool, "call", failing_call)

    return begin


class Ended:
    """A command that has ended: its exit code, and everything that it said."""

    def __init__(self, line: str, namesrv: str) -> None:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*line.split(), "-n", namesrv])
        error = result.exception
        if error is not None and not isinstance(error, SystemExit | RoquetError):
            raise error
        self.code = result.exit_code
        self.stdout = result.stdout
        self.text = result.output + ("" if isinstance(error, SystemExit) else str(error or ""))


@pytest.mark.parametrize("how", ["refuses", "is slow"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_fails_with_the_reason_when_every_broker_does(
    command: str, how: str, running: BlockingCluster, fail: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "access.json").write_text('{"users": [], "acls": []}')
    fail(how, 0, 1)
    ended = Ended(f"{command} {COMMANDS[command]}", running.namesrv_addr)
    assert ended.code == 1, ended.text
    assert str(FAILURES[how]) in ended.text


@pytest.mark.parametrize(
    ("how", "json"), [("refuses", ""), ("is away", ""), ("refuses", " --json")]
)
@pytest.mark.parametrize("command", sorted(LOOKS))
def test_a_list_says_which_part_is_missing(
    command: str, json: str, how: str, running: BlockingCluster, fail: Callable[..., None]
) -> None:
    fail(how, 1)
    ended = Ended(f"{command} {COMMANDS[command]}{json}", running.namesrv_addr)
    assert ended.code == 1, ended.text
    assert "broker-b" in ended.text
    assert str(FAILURES[how]) in ended.text


def test_numbers_that_no_broker_tells_are_not_zero(
    running: BlockingCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may list groups, and may not look at them."""
    refused = (GetConsumeStats, GetConnections, GetTopicStats)
    call = ChannelPool.call

    async def refusing_call(pool: ChannelPool, address: str, one: Any, *rest: Any) -> Any:
        if isinstance(one, refused):
            raise FAILURES["refuses"]
        return await call(pool, address, one, *rest)

    monkeypatch.setattr(ChannelPool, "call", refusing_call)
    ended = Ended("group ls", running.namesrv_addr)
    rows = [line.split() for line in ended.stdout.splitlines()]
    assert ["billing", "?", "?", "?", "part", "missing"] in rows
    shown = Ended("group show billing", running.namesrv_addr)
    assert shown.stdout.startswith("billing  members not known  lag not known  dead letters not")
    (group,) = map(json.loads, Ended("group ls --json", running.namesrv_addr).stdout.splitlines())
    assert (group["members"], group["lag"], group["dead_letters"]) == (None, None, None)
    assert (ended.code, shown.code) == (1, 1)
    deleted = Ended("group delete billing --yes", running.namesrv_addr)
    assert deleted.code == 1
    assert "group 'billing' may have members" in deleted.text
