import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roquet.cli.main import app
from roquet.client import blocking
from roquet.model.errors import StoreError
from roquet.testing.cluster import BlockingCluster


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


def roquet(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


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
    with pytest.raises(StoreError, match="its entries cannot be told apart"):
        roquet("dump", index)
    output = roquet("dump", index, "--config", data / "broker.conf").output
    assert output.count("\nentry number=") == 2 * 3, "each message has an id and a key"


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(StoreError, match="is no store file"):
        roquet("dump", __file__)
    with pytest.raises(StoreError, match="is not a file"):
        roquet("dump", "/nonexistent/checkpoint")


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
    with pytest.raises(StoreError, match="there is no commitlog in it"):
        roquet("check", tmp_path)
