"""The servers as users start them: processes, signals, exit codes."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.running import must_fail

from roquet import __version__
from roquet.cli.servers import start
from roquet.client import blocking
from roquet.client.config import ConsumeFrom, ConsumerConfig
from roquet.model.errors import ConfigError, UsageError
from roquet.wire.records import speedups

SOURCE = Path(__file__).parents[3] / "src"
ENVIRON = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"], "HOME": "/nonexistent"}
FROM_THE_FIRST = ConsumerConfig(consume_from=ConsumeFrom.FIRST)
ANY = ("--port", "0", "--namesrv-port", "0")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "roquet", *arguments]


@contextmanager
def started(
    *arguments: str, cwd: Path, until: str = "ready"
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Output of a server up to the line that says it is ready; it is stopped in good order."""
    process = subprocess.Popen(
        command(*arguments),
        env=ENVIRON,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout as output:
        printed = ""
        for line in output:
            printed += line
            if until in line:
                break
        else:
            raise AssertionError(process.stderr.read())
        try:
            yield printed, process
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def namesrv_of(printed: str) -> str:
    return printed.partition("name server")[2].split()[0]


def failing(*arguments: str, cwd: Path) -> tuple[int, str]:
    run = subprocess.run(
        command(*arguments),
        env=ENVIRON, cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return run.returncode, run.stderr


def test_dev_serves_and_prints_a_snippet_that_works(tmp_path: Path) -> None:
    with started("dev", "--memory", *ANY, cwd=tmp_path) as (printed, _):
        namesrv = namesrv_of(printed)
        snippet = [line[4:] for line in printed.splitlines() if line.startswith("    ")]
        assert f'Producer("{namesrv}")' in "\n".join(snippet)
        assert f"Roquet {__version__} ({speedups.DESCRIPTION})\n" in printed
        run = subprocess.run(
            [sys.executable, "-c", "\n".join(snippet)],
            env=ENVIRON, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "SEND_OK" in run.stdout
    assert list(tmp_path.iterdir()) == [], "memory leaves nothing"


def test_dev_is_reached_from_this_machine_alone(tmp_path: Path) -> None:
    with started("dev", "--memory", *ANY, cwd=tmp_path) as (out, _):
        assert re.search(r"broker +127\.0\.0\.1:\d+\n", out)
        port = int(namesrv_of(out).rpartition(":")[2])
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_dev_keeps_messages_where_it_was_started_and_has_them_again(tmp_path: Path) -> None:
    with (
        started("dev", *ANY, cwd=tmp_path) as (printed, _),
        blocking.Producer(namesrv_of(printed)) as producer,
    ):
        assert producer.send("orders", b"kept").ok
    assert (tmp_path / "roquet-data" / "commitlog").is_dir()
    with started("dev", *ANY, cwd=tmp_path) as (printed, _):
        consumer = blocking.PushConsumer(
            namesrv_of(printed), group="g", topic="orders", config=FROM_THE_FIRST
        )
        with consumer:
            message = consumer.next(10_000)
            assert message is not None
            assert message.body == b"kept"


def test_a_name_server_and_a_broker_find_each_other(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName = from-the-file\nlistenPort = 1\nbrokerIP1 = 127.0.0.1\n")
    with started("namesrv", "--port", "0", cwd=tmp_path) as (printed, _):
        namesrv = printed.partition("ready at ")[2].strip()
        with (
            started(
                "broker", "--config", str(conf), "--port", "0", "--namesrv", namesrv, "--memory",
                cwd=tmp_path,
            ) as (output, _),
            blocking.Producer(namesrv) as producer,
        ):  # fmt: skip
            assert output.startswith("broker from-the-file ready at 127.0.0.1:")
            assert producer.send("orders", b"x").queue.broker_name == "from-the-file"


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with started("namesrv", "--port", "0", cwd=tmp_path) as (printed, _):
        port = printed.rpartition(":")[2].strip()
        code, output = failing("namesrv", "--port", port, cwd=tmp_path)
    assert code == 2
    assert output == (
        f"roquet: port {port} is in use: stop the other process or choose another with --port\n"
    )


def test_dev_says_which_of_its_two_ports_is_in_use(tmp_path: Path) -> None:
    with started("namesrv", "--port", "0", cwd=tmp_path) as (printed, _):
        port = printed.rpartition(":")[2].strip()
        code, output = failing("dev", "--memory", "--namesrv-port", port, cwd=tmp_path)
        assert (code, "choose another with --namesrv-port" in output) == (2, True)
        code, output = failing(
            "dev", "--memory", "--namesrv-port", "0", "--port", port, cwd=tmp_path
        )
        assert (code, "choose another with --port" in output) == (2, True)


def test_a_directory_that_another_process_holds_is_named(tmp_path: Path) -> None:
    with started("dev", *ANY, "--data", "here", cwd=tmp_path):
        code, output = failing("dev", *ANY, "--data", "here", cwd=tmp_path)
    assert code == 1
    assert "here" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("flushDiskTyp = SYNC_FLUSH", "flushDiskTyp: unknown here and in Apache RocketMQ; did you"),
        ("retention = 72", "'72' is not a number with a unit"),
        ("listenPort = often", "'often' is not a whole number"),
    ],
)
def test_a_wrong_line_of_a_configuration_is_named(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "broker.conf").write_text(f"brokerName = b\n{line}\n")
    code, output = failing("broker", "-c", "broker.conf", cwd=tmp_path)
    assert code == 2
    assert "broker.conf line 2" in output
    assert words in output
    assert output.count("\n") == 1


def test_a_number_that_is_no_port_of_a_broker_is_named() -> None:
    must_fail(ConfigError, "70000 is no port: choose one", "broker", "--memory", "--port", "70000")


def test_memory_and_a_directory_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="leave --data or --memory out"):
        start.dev(start.DevOptions(memory=True, data=Path("x")))


def test_ctrl_c_ends_a_server_in_good_order_and_is_an_exit_code(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("dev", "--memory", *ANY),
        env=ENVIRON, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
