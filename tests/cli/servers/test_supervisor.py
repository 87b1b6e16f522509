import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import randrange
from typing import NamedTuple

import pytest
from tests.admin.elected_group import operate
from tests.cli.process.test_child_processes import FakeChild
from tests.cli.running import invoke, must_fail, roquet
from tests.conversation.failover_group import CONTROLLER, Group, group
from tests.metrics.prometheus_text import parsed

from harness.ports import free_port
from roquet.admin import brokers
from roquet.admin.client import AdminClient
from roquet.cli.process import child_processes, runtime
from roquet.cli.process.child_processes import ChildProcess
from roquet.cli.servers import supervisor
from roquet.cli.servers.serve_plan import (
    PORT_STEP,
    REPLICA_PORT_STEP,
    BrokerProcess,
    ControllerPlan,
    ControllerProcess,
    broker_processes,
)
from roquet.cli.servers.server_processes import ServerProcesses
from roquet.cli.servers.supervisor import FORMATION_TIMEOUT_S, Formation, formed
from roquet.client import ProducerConfig, Tls
from roquet.client.producer import Producer
from roquet.model.errors import CallRefused, UsageError
from roquet.net.channel import Channel, Security
from roquet.observe.page_client import read_page
from roquet.testing.clock import in_virtual_time
from roquet.wire.calls.route import GetRoute

CERTIFICATES = Path(__file__).parents[2] / "certificates"


class Serving(NamedTuple):
    """`roquet serve`, its ports, and the rows of its table of brokers."""

    process: asyncio.subprocess.Process
    port: int
    namesrv_port: int
    rows: list[list[str]]


async def test_a_stop_signal_during_the_start_starts_no_further_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop, names = asyncio.Event(), FakeChild("namesrv")
    monkeypatch.setattr(runtime, "stop_signal", lambda: stop)

    class StoppedWhileStarting(ServerProcesses):
        async def namesrv(self) -> ChildProcess:
            stop.set()
            return names

        async def broker(self, broker: BrokerProcess) -> ChildProcess:
            raise AssertionError("no broker is begun")

    await supervisor.run_servers(
        StoppedWhileStarting(
            brokers=[BrokerProcess(broker="broker-a", port=1)], namesrv_port=2, data=tmp_path
        )
    )
    assert names.end.is_set()


async def test_a_name_server_that_dies_while_a_broker_recovers_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop, names = asyncio.Event(), [FakeChild("namesrv"), FakeChild("namesrv")]
    monkeypatch.setattr(runtime, "stop_signal", lambda: stop)
    monkeypatch.setattr(child_processes, "PAUSE_MIN_S", 0.01)
    begun: list[FakeChild] = []

    class Recovering(ServerProcesses):
        async def namesrv(self) -> ChildProcess:
            begun.append(names[len(begun)])
            return begun[-1]

        async def broker(self, broker: BrokerProcess) -> ChildProcess:
            names[0].end.set()
            while len(begun) < 2:  # noqa: ASYNC110 - a fake
                await asyncio.sleep(0.01)
            stop.set()
            await asyncio.Event().wait()
            raise AssertionError

    broker = BrokerProcess(broker="broker-a", port=1)
    await supervisor.run_servers(Recovering(brokers=[broker], namesrv_port=2, data=tmp_path))
    assert begun == names
    assert names[1].end.is_set(), "it is stopped at the end"


async def test_a_name_that_takes_no_messages_in_time_is_a_line_with_its_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop, children = asyncio.Event(), [FakeChild(f"child-{number}") for number in range(4)]
    monkeypatch.setattr(runtime, "stop_signal", lambda: stop)
    controllers = ControllerPlan(count=1, port=9, host="h")
    plan = broker_processes(1, 1, None, 10_911, controllers.addresses)

    class Unformed(ServerProcesses):
        async def namesrv(self) -> ChildProcess:
            return children[2]

        async def controller(self, process: ControllerProcess) -> ChildProcess:
            return children[3]

        async def broker(self, broker: BrokerProcess) -> ChildProcess:
            child = children[broker.broker_id]
            child.address = f"h:{broker.port}"
            return child

    async def nothing_forms(*_: object) -> Formation:
        return Formation({}, ["broker-a"])

    async def no_wait(_stop: asyncio.Event) -> None: ...

    monkeypatch.setattr(supervisor, "formed", nothing_forms)
    monkeypatch.setattr(runtime, "serve_until", no_wait)
    await supervisor.run_servers(
        Unformed(brokers=plan, controllers=controllers, namesrv_port=2, data=tmp_path)
    )
    printed = capsys.readouterr()
    assert printed.out.endswith("ready (Ctrl-C stops)\n")
    logs = tmp_path / "logs"
    assert printed.err == (
        "broker-a takes no messages yet: no master that has 2 logs in sync leads; see "
        f"{logs / 'broker-a.log'}, {logs / 'broker-a-1.log'}\n"
    )


SERVED = [below + above for below in (0, PORT_STEP) for above in (0, REPLICA_PORT_STEP)]
SERVED += [port + 1 for port in SERVED]
"""From the port of a first broker to those of a second one, and of a replica of each."""

METRICS = range(4)
"""From the first page of metrics to those of three processes more."""


@asynccontextmanager
async def served(
    directory: Path, *options: str, processes: int, controller: int | None = None
) -> AsyncIterator[Serving]:
    """A name server and so many brokers, processes that a process looks after.

    `controller` is the port of a controller, if there is one.
    """
    port = free_port(*SERVED)
    namesrv_port = free_port()
    command = ["-m", "roquet", "serve", "--host", "127.0.0.1", *options]
    command += ["--port", str(port), "--namesrv-port", str(namesrv_port), "--data", str(directory)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "1000"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            servers = {
                "name server": namesrv_port,
                **({"controller": controller} if controller else {}),
            }
            for title, its_port in servers.items():
                line = (await process.stdout.readline()).decode()
                assert line == f"{title:<11}  127.0.0.1:{its_port}\n"
            head, *rows = [
                (await process.stdout.readline()).decode().split() for _ in range(processes + 1)
            ]
            assert head == ["broker", "id", "role", "address", "directory"]
            assert (await process.stdout.readline()).startswith(b"ready")
            yield Serving(process, port, namesrv_port, rows)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """Two brokers and a name server."""
    async with served(tmp_path, "--brokers", "2", processes=2) as running:
        assert [row[:4] for row in running.rows] == [
            ["broker-a", "0", "master", f"127.0.0.1:{running.port}"],
            ["broker-b", "0", "master", f"127.0.0.1:{running.port + PORT_STEP}"],
        ], "brokers listen where they are told to"
        yield running


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_two_brokers_serve_and_one_that_is_killed_comes_back(
    serving: Serving, tmp_path: Path
) -> None:
    process, _, namesrv_port, _ = serving
    assert process.stderr is not None
    (victim,) = {pid for pid in _children(process.pid) if "broker-b" in _command(pid)}
    os.kill(victim, signal.SIGKILL)
    while b"broker-b is back" not in (line := await process.stderr.readline()):
        assert line
    async with Producer(f"127.0.0.1:{namesrv_port}") as producer:
        assert (await producer.send("orders", b"x")).ok
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    assert _names(tmp_path) == ["broker-a", "broker-b", "logs", "namesrv"]


@pytest.mark.slow
async def test_one_page_has_the_metrics_of_all_processes(tmp_path: Path) -> None:
    port = free_port(*METRICS)
    config = tmp_path / "all.conf"
    config.write_text(
        f"metricsExporterType=PROM\nmetricsPromExporterHost=127.0.0.1\nmetricsPromExporterPort={port}\n"
    )
    options = ["--brokers", "2", "-c", str(config)]
    async with served(tmp_path / "data", *options, processes=2) as running:
        async with Producer(f"127.0.0.1:{running.namesrv_port}") as producer:
            await producer.send("orders", b"x")
        page = parsed(await read_page(f"127.0.0.1:{port}", "/metrics", timeout_ms=10_000))
    up = {v.labels["process"]: v.value for v in page.values if v.name == "roquet_process_up"}
    assert up == {"namesrv": 1, "broker-a": 1, "broker-b": 1}
    assert page.one("roquet_brokers", process="namesrv") == 2
    assert page.one("rocketmq_messages_in_total", topic="orders") == 1
    assert page.one("rocketmq_broker_permission", process="broker-b", node_id="broker-b") == 6


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_a_message_is_on_a_replica_once_its_sender_is_answered(tmp_path: Path) -> None:
    (tmp_path / "all.conf").write_text("haListenPort=1\nbrokerRole=SLAVE\nslaveReadEnable=true\n")
    own = tmp_path / "data" / "broker-a-1"
    own.mkdir(parents=True)
    (own / "broker.conf").write_text("replica_ack=flushed\n")
    options = ["--replicas", "1", "-c", str(tmp_path / "all.conf")]
    async with served(tmp_path / "data", *options, processes=2) as running:
        assert [row[:4] for row in running.rows] == [
            ["broker-a", "0", "SYNC_MASTER", f"127.0.0.1:{running.port}"],
            ["broker-a", "1", "SLAVE", f"127.0.0.1:{running.port + REPLICA_PORT_STEP}"],
        ]
        async with Producer(f"127.0.0.1:{running.namesrv_port}") as producer:
            receipt = await producer.send("orders", b"kept twice")
            assert receipt.ok
        assert b"kept twice" in log_of(own)
        async with AdminClient(f"127.0.0.1:{running.namesrv_port}") as admin:
            replicas = await brokers.settings(admin, "broker-a#1")
            masters = await brokers.settings(admin, "broker-a")
        assert (masters["slaveReadEnable"], masters["inSyncReplicas"]) == ("true", "2")
        assert replicas["slaveReadEnable"] == "false", "a file of its own is read in place"
        running.process.send_signal(signal.SIGTERM)
        assert await running.process.wait() == 0
        assert running.process.stderr is not None
        assert await running.process.stderr.read() == b""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_all_servers_speak_tls_and_check_users_as_one_file_says(tmp_path: Path) -> None:
    """Also those that have no broker.conf: else the replica would find no master, nor its roles."""
    data, inner = tmp_path / "data", {"username": "inner", "password": "s", "userType": "Super"}
    (tmp_path / "all.conf").write_text(
        f"tls_cert={CERTIFICATES / 'server.pem'}\ntls_key={CERTIFICATES / 'server.key'}\n"
        f"tls_ca={CERTIFICATES / 'ca.pem'}\n"
        "authenticationEnabled=true\nauthorizationEnabled=true\n"
        'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"s"}\n'
    )
    (tmp_path / "users.json").write_text(json.dumps({"users": [inner]}))
    port = randrange(7_000, 9_000)
    options = ["--replicas", "1", "--controllers", "1", "--controller-port", str(port)]
    options += ["-c", str(tmp_path / "all.conf"), "--access-file", str(tmp_path / "users.json")]
    async with served(data, *options, processes=2, controller=port) as running:
        assert sorted(row[2] for row in running.rows) == ["master", "replica"]
        tls = Tls(ca=CERTIFICATES / "ca.pem")
        config = ProducerConfig(tls=tls, access_key="inner", secret_key="s")
        namesrv = f"127.0.0.1:{running.namesrv_port}"
        async with Producer(namesrv, config=config) as producer:
            assert (await producer.send("orders", b"sealed")).ok
        for place in (running.namesrv_port, port):
            security = Security(context=tls.context())
            async with await Channel.connect("127.0.0.1", place, security=security) as channel:
                with pytest.raises(CallRefused, match="username cannot be null"):
                    await channel.call(GetRoute(topic="orders"))


def log_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / "commitlog").iterdir()))


def test_a_file_for_all_cannot_name_one_master(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("haMasterAddress=10.0.0.1:10912\n")
    with pytest.raises(UsageError, match="each finds its own by the name server"):
        roquet("serve", "--replicas", "1", "-c", str(config))


@pytest.mark.skipif(sys.platform == "win32", reason="ends processes by signals")
async def test_no_process_is_left_when_the_supervisor_is_killed(serving: Serving) -> None:
    process = serving.process
    left = _children(process.pid)
    assert len(left) == 3
    process.kill()
    await process.wait()
    while any(map(_is_alive, left)):  # noqa: ASYNC110 - nobody tells us of others' children
        await asyncio.sleep(0.02)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _children(pid: int) -> set[int]:
    children_file = Path(f"/proc/{pid}/task/{pid}/children")
    if not children_file.exists():
        pytest.skip("this system does not tell whose child is whose")
    return {int(child) for child in children_file.read_text().split()}


def _is_alive(pid: int) -> bool:
    try:
        return bool(_command(pid))  # empty for one that only waits to be forgotten
    except FileNotFoundError:
        return False


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_wrong_use_is_an_error() -> None:
    with pytest.raises(UsageError, match="ports up to 65541 are needed"):
        roquet("serve", "--brokers", "3", "--port", "65520")
    must_fail(UsageError, "a host alone", "serve", "--advertise", "here:1")
    for option in ("--port", "--namesrv-port"):
        must_fail(UsageError, "fixed ones", "serve", option, "0")
    assert invoke("serve", "--brokers", "0").exit_code == 2


CONTROLLERS = [f"{CONTROLLER}:9878"]


async def formation(running: Group, *names: str, stopped: bool = False) -> Formation:
    stop = asyncio.Event()
    if stopped:
        stop.set()
    return await operate(running, lambda admin: formed(admin, names, CONTROLLERS, 2, stop))


@in_virtual_time
async def test_it_ends_once_messages_are_taken() -> None:
    async with group(3) as running:
        members, unformed = await formation(running, "g")
        assert [one.is_master for one in members.values()] == [True, False, False]
        assert unformed == []
        assert (await running.send("a")).code == 0


@in_virtual_time
async def test_a_group_that_does_not_form_is_waited_for_so_long() -> None:
    async with group(1) as running:
        began = running.loop.time()
        members, unformed = await formation(running, "h", "g")
        assert running.loop.time() - began == pytest.approx(FORMATION_TIMEOUT_S, abs=1)
        assert [one.broker_id for one in members.values()] == [1], "g is asked about all the same"
        assert unformed == ["h", "g"]


@in_virtual_time
async def test_a_stop_signal_ends_the_wait() -> None:
    async with group(1) as running:
        assert await formation(running, "h", stopped=True) == ({}, [])
