"""roquet controller as users start it."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from tests.cli.servers.test_start import ENVIRON, command, started
from tests.controller.state_store.real_etcd import running_etcd

from roquet.cli.servers.controller import DEFAULT_STORE, configured, load_settings, read_file
from roquet.controller.config import ControllerConfig
from roquet.model.errors import CallError, ConfigError
from roquet.net.channel import Channel
from roquet.net.tls import ServerTls, Tls, TlsMode
from roquet.wire.calls.controller import (
    ApplyBrokerId,
    ElectMaster,
    GetControllerMetadata,
    GetControllerMetadataReply,
    GetReplicaInfo,
)

ANY = ("--port", "0", "--host", "127.0.0.1")


@contextmanager
def killed_at_the_end(*arguments: str, cwd: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The line of a server that says that it is ready, and its process."""
    process = subprocess.Popen(
        command(*arguments), env=ENVIRON, cwd=cwd, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout as output:
        try:
            yield output.readline(), process
        finally:
            process.kill()


def port_of(printed: str) -> int:
    return int(printed.rpartition("ready at ")[2].strip().rpartition(":")[2])


async def first_group(port: int) -> None:
    """Register one broker at a controller, and let it lead."""
    async with await Channel.connect("127.0.0.1", port) as channel:
        apply = ApplyBrokerId(
            cluster_name="C", broker_name="bc", applied_broker_id=1, register_check_code="h:1;17"
        )
        await channel.call(apply)
        await channel.call(ElectMaster(cluster_name="C", broker_name="bc", broker_id=1))


async def master_epoch(port: int) -> int | None:
    async with await Channel.connect("127.0.0.1", port) as channel:
        return (await channel.call(GetReplicaInfo(broker_name="bc"))).master_epoch


async def metadata(port: int) -> GetControllerMetadataReply:
    async with await Channel.connect("127.0.0.1", port) as channel:
        return await channel.call(GetControllerMetadata())


async def test_its_state_is_there_again_after_a_kill(tmp_path: Path) -> None:
    arguments = ("controller", *ANY, "--store", f"file:{tmp_path / 'state'}")
    with killed_at_the_end(*arguments, cwd=tmp_path) as (printed, _):
        await first_group(port_of(printed))
    with started(*arguments, cwd=tmp_path) as (printed, _):
        assert await master_epoch(port_of(printed)) == 1


def test_without_a_store_it_keeps_its_state_below_the_working_directory(tmp_path: Path) -> None:
    with started("controller", *ANY, cwd=tmp_path):
        assert (tmp_path / "roquet-controller" / "lock").exists()


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "roquet-controller").mkdir()
    (tmp_path / "roquet-controller" / "controller.json").write_text("{}")
    with (
        pytest.raises(AssertionError, match=r"^roquet: .*controller\.json is damaged .*\n$"),
        started("controller", *ANY, cwd=tmp_path),
    ):
        pass


def test_a_settings_file_is_read_and_options_win(tmp_path: Path) -> None:
    path = tmp_path / "controller.conf"
    path.write_text(
        "listenPort=1\nbindAddress=127.0.0.1\ncontrollerDLegerPeers=n0-127.0.0.1:1\n"
        f"controllerStorePath={tmp_path}/st\n"
    )
    with started("controller", "-c", str(path), "--port", "0", cwd=tmp_path) as (printed, process):
        assert port_of(printed) != 1
        assert (tmp_path / "st" / "lock").exists()
    assert process.stderr is not None


@pytest.mark.slow
async def test_a_second_controller_takes_over_within_seconds_after_a_kill(tmp_path: Path) -> None:
    with running_etcd(tmp_path) as etcd:
        arguments = ("controller", *ANY, "--store", f"etcd:{etcd.address}")
        with (
            killed_at_the_end(*arguments, cwd=tmp_path) as (first, leader),
            killed_at_the_end(*arguments, cwd=tmp_path) as (second, _),
        ):
            await first_group(port_of(first))
            before = await metadata(port_of(second))
            assert before.controller_leader_address == f"127.0.0.1:{port_of(first)}"
            assert not before.is_leader
            leader.kill()
            for _ in range(100):
                if (await metadata(port_of(second))).is_leader:
                    break
                await asyncio.sleep(0.1)
            assert await master_epoch(port_of(second)) == 1


async def test_a_name_server_can_hold_a_controller(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(
        "listenPort=0\nbindAddress=127.0.0.1\nenableControllerInNamesrv=true\n"
        "controllerListenPort=0\ncontrollerDLegerGroup=g1\n"
        f"controllerStorePath={tmp_path}/st\n"
    )
    with started("namesrv", "-c", str(path), cwd=tmp_path, until="controller") as (printed, _):
        assert "name server ready at 127.0.0.1:" in printed
        assert (await metadata(port_of(printed))).group == "g1"


async def test_a_port_in_use_is_named_with_its_option(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        for arguments, option in (
            (("controller", "--host", "127.0.0.1", "--port", str(port)), "with --port"),
            (
                ("namesrv", *ANY, "--controller", "memory", "--controller-port", str(port)),
                "with --controller-port",
            ),
        ):
            with (
                pytest.raises(AssertionError, match=option),
                started(*arguments, cwd=tmp_path, until="controller ready"),
            ):
                pass


async def test_nobody_answers_once_it_was_stopped(tmp_path: Path) -> None:
    with started("controller", *ANY, "--store", "memory", cwd=tmp_path) as (printed, _):
        port = port_of(printed)
    with pytest.raises(CallError):
        await metadata(port)


def test_a_store_that_nobody_named_survives_a_restart() -> None:
    assert configured(ControllerConfig(), {"store": None}).store == DEFAULT_STORE
    assert configured(ControllerConfig(), {"store": "memory"}).store == "memory"
    loaded = ControllerConfig(store="etcd:h:1", port=7)
    assert configured(loaded, {"port": None}) == loaded
    assert configured(loaded, {"port": 8}).port == 8


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: cannot be read"):
        read_file(tmp_path / "none")
    path = tmp_path / "c"
    path.write_text("listenPort=3\n")
    assert load_settings(path).port == 3


def test_a_file_may_have_the_keys_of_tls(tmp_path: Path) -> None:
    path = tmp_path / "controller.conf"
    path.write_text("listenPort=5\ntls.server.certPath=/c.pem\ntls.enable=true\n")
    loaded = load_settings(path)
    assert (loaded.port, loaded.tls) == (
        5, ServerTls(cert=Path("/c.pem"), mode=TlsMode.PERMISSIVE)
    )  # fmt: skip
    assert loaded.calls == Tls(check_host=False, verify=False)
