import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from tests.cli.running import must_fail, roquet

from roquet.broker.replication.control import machine_boot
from roquet.client import blocking
from roquet.model.errors import RoquetError, StoreError, UsageError
from roquet.store.backup.backup import backups_in
from roquet.store.backup.restore import damaged_files
from roquet.store.check import check
from roquet.store.store import Store
from roquet.testing.cluster import BlockingCluster
from roquet.wire.records.record import decode_many


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's directory with three messages in it, and its broker.conf."""
    directory = tmp_path_factory.mktemp("store")
    with (
        BlockingCluster(store=directory, index_slots=100, index_entries=400) as cluster,
        blocking.Producer(cluster.namesrv_addr) as producer,
    ):
        for body in (b"one", b"\xff", b"long" * 100):
            producer.send("orders", body, tag="t", keys=("k",), order_key="o")
    (directory / "broker-a" / "broker.conf").write_text("maxHashSlotNum = 100\nmaxIndexNum = 400\n")
    return directory / "broker-a"


def only_file(directory: Path) -> Path:
    (file,) = [path for path in directory.rglob("*") if path.is_file()]
    return file


def test_a_log_is_printed_record_by_record(data: Path) -> None:
    lines = roquet("dump", only_file(data / "commitlog")).output.splitlines()
    assert lines[0].startswith("record topic=orders ")
    assert " body=one " in lines[0]
    assert lines[3].startswith("free position=")
    assert "… (400 characters)" in lines[2], "a long body is cut"


def test_json_cuts_nothing(data: Path) -> None:
    output = roquet("dump", "--json", only_file(data / "commitlog")).output
    records = [json.loads(line) for line in output.splitlines()]
    assert [r["body"] for r in records[:3]] == ["one", "ff", "long" * 100]
    assert records[1]["body_is_hex"]


def test_a_queue_and_the_checkpoint_are_printed(data: Path) -> None:
    entries = roquet("dump", only_file(data / "consumequeue")).output.splitlines()
    assert [line.split()[:2] for line in entries] == [["entry", f"offset={n}"] for n in range(3)]
    assert roquet("dump", data / "checkpoint").output.startswith("checkpoint log_ms=")


def test_a_table_is_printed_as_json(data: Path) -> None:
    table = json.loads(roquet("dump", data / "config" / "topics.json").output)
    assert "orders" in table["topicConfigTable"]


def test_an_index_of_another_shape_needs_the_configuration(data: Path) -> None:
    index = only_file(data / "index")
    must_fail(StoreError, "its entries cannot be told apart", "dump", index)
    output = roquet("dump", index, "--config", data / "broker.conf").output
    assert output.count("\nentry number=") == 2 * 3, "each message has an id and a key"


def test_a_file_of_another_kind_is_refused() -> None:
    must_fail(StoreError, "is no store file", "dump", __file__)
    must_fail(StoreError, "is not a file", "dump", "/nonexistent/checkpoint")


def test_an_intact_directory_is_reported_as_intact(data: Path) -> None:
    result = roquet("check", data, "-c", data / "broker.conf")
    assert result.exit_code == 0
    assert "broker-a: whole" in result.output
    assert "3 records in 1 queues" in result.output


@pytest.fixture
def damaged(data: Path) -> Iterator[Path]:
    log = only_file(data / "commitlog")
    whole = log.read_bytes()
    with log.open("r+b") as file:
        file.write(b"\xee" * 40)
    yield data
    log.write_bytes(whole)


def test_damage_is_reported_and_sets_the_exit_code(damaged: Path) -> None:
    result = roquet("check", damaged, "-c", damaged / "broker.conf")
    assert result.exit_code == 1
    assert "damaged" in result.output
    assert "unreadable: " in result.output
    report = json.loads(roquet("check", damaged, "-c", damaged / "broker.conf", "--json").output)
    assert report["verdict"] == "damaged"
    assert report["damage"]


def test_a_directory_that_is_no_store_is_named(tmp_path: Path) -> None:
    must_fail(StoreError, "there is no commitlog in it", "check", tmp_path)


TOPIC = "orders"


def bodies_in(directory: Path) -> list[bytes]:
    """All messages of the topic in a directory, which is opened as a broker would."""
    store = Store.open(directory, now_ms=time.time_ns() // 1_000_000, pid=1)
    found: list[bytes] = []
    for queue_id in store.queue_ids(TOPIC):
        offset, end = store.bounds(TOPIC, queue_id)
        while offset < end:
            part = store.read(TOPIC, queue_id, offset, count_max=1000)
            found += [record.body for raw in part.parts for record in decode_many(raw)]
            offset = part.next_offset
    store.close(0)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BlockingCluster, Path]]:
    """A broker in use with three messages, and its data directory."""
    directory = tmp_path_factory.mktemp("backups")
    with BlockingCluster(store=directory) as running:
        with blocking.Producer(running.namesrv_addr) as producer:
            for number in range(3):
                producer.send(TOPIC, b"%d" % number)
        yield running, directory / "broker-a"


def test_a_directory_in_use_is_backed_up_checked_and_restored(
    cluster: tuple[BlockingCluster, Path], tmp_path: Path
) -> None:
    _, data = cluster
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    shown = roquet("backup", data, backups).output
    assert "messages from position 0 to" in shown
    made = json.loads(roquet("backup", data, backups, "--keep", 1, "--json").output)
    assert made["copied"] <= made["bytes"]
    assert len(made["removed"]) == 1
    assert str(made["removed"][0]) in shown
    assert "whole" in roquet("restore", backups, "--check").output
    assert f"restored to {restored}" in roquet("restore", backups, restored).output
    assert (restored / machine_boot.FILE_NAME).read_text() == machine_boot.LACKING
    assert sorted(bodies_in(restored)) == [b"0", b"1", b"2"]
    assert check(restored).verdict == "whole"


def test_a_damaged_backup_ends_with_code_1_and_names_the_file(
    cluster: tuple[BlockingCluster, Path], tmp_path: Path
) -> None:
    _, data = cluster
    roquet("backup", data, tmp_path / "backups")
    (made,) = backups_in(tmp_path / "backups")
    log = made / "data" / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    shown = roquet("restore", made, "--check")
    assert shown.exit_code == 1
    assert f"{log} is damaged" in shown.output
    assert json.loads(roquet("restore", made, "--check", "--json").output)["damaged"]
    must_fail(StoreError, "nothing was restored", "restore", made, tmp_path / "restored")


def test_a_restore_needs_a_directory_or_check(tmp_path: Path) -> None:
    must_fail(UsageError, "--check", "restore", tmp_path)
    must_fail(UsageError, "--check", "restore", tmp_path, tmp_path / "new", "--check")


class Sender(threading.Thread):
    """Sends to a broker until it is stopped; `acknowledged` holds what is certainly stored."""

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        self.acknowledged: list[bytes] = []
        self.stopping = threading.Event()
        self._namesrv = namesrv

    def run(self) -> None:
        with blocking.Producer(self._namesrv) as producer:
            number = 0
            while not self.stopping.is_set():
                body = b"%d" % number
                number += 1
                try:
                    producer.send(TOPIC, body)
                except RoquetError:
                    return
                self.acknowledged.append(body)


@contextmanager
def dev(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`roquet dev` in a process of its own, and its name server's address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "roquet", "dev", "--port", "0", "--namesrv-port", "0",
         "--host", "127.0.0.1", "--data", str(data)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        namesrv = ""
        for line in process.stdout:
            if "name server" in line:
                namesrv = line.split()[-1]
            if line.startswith("ready"):
                break
        yield process, namesrv
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.slow
def test_what_was_acknowledged_before_a_backup_is_in_it_whatever_is_killed(tmp_path: Path) -> None:
    data, backups, random = tmp_path / "data", tmp_path / "backups", Random(7)
    command = [sys.executable, "-m", "roquet", "backup", str(data), str(backups)]
    with dev(data) as (broker, namesrv):
        sender = Sender(namesrv)
        sender.start()
        while sender.is_alive() and len(sender.acknowledged) < 100:
            time.sleep(0.01)
        for _ in range(4):  # the backup is killed
            killed = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(random.uniform(0.1, 0.6))
            killed.kill()
            killed.wait()
            assert all(not list(damaged_files(path)) for path in backups_in(backups))
        before = list(sender.acknowledged)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        assert set(before) <= set(restored_bodies(backups, tmp_path / "first"))
        before = list(sender.acknowledged)
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        broker.send_signal(signal.SIGKILL)  # the broker is killed while a backup is made
        assert running.wait() == 0
        sender.stopping.set()
        sender.join()
    assert set(before) <= set(restored_bodies(backups, tmp_path / "second"))


def restored_bodies(backups: Path, directory: Path) -> list[bytes]:
    command = [sys.executable, "-m", "roquet", "restore", str(backups), str(directory)]
    for delay_s in (0.15, 0.25, 0.35):  # the restore is killed
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay_s)
        killed.kill()
        killed.wait()
    if not directory.exists():
        roquet("restore", backups, directory)
    found = bodies_in(directory)
    assert len(found) == len(set(found))
    assert check(directory).verdict == "whole"
    return found
