"""Commit-log files of Roquet and Apache brokers are read without a broker."""

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType
from tests.unpacking import unpack

from roquet.arrow import records as arrow_records
from roquet.lake.schema import TYPES
from roquet.model.errors import ConfigError, RecordError
from roquet.model.flags import SysFlag
from roquet.spark.source import log_splits, store_files
from roquet.spark.source.data_source import RoquetDataSource, fields_of
from roquet.spark.source.log_splits import LogSplit, plan_splits
from roquet.spark.source.store_files import StoreFileReader, parse_store
from roquet.store.store import Draft, Store

VECTORS = Path(__file__).parents[2] / "vectors" / "store"
KINDS = [f"{version}-{kind}" for version in ("4.9.7", "5.5.0") for kind in ("clean", "torn")]
NOW = 1_800_000_000_000
ALL = [(name, TYPES[name]) for name in ("topic", "queue_id", "queue_offset", "body", "position")]
PROBLEMS = [("problem", "string"), ("position", "bigint"), ("body", "binary"), ("size", "int")]
FILE = 24 * 1024
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])


def rows(folder: Path, *fields: tuple[str, str], **options: str) -> list[dict[str, Any]]:
    settings = parse_store({"store": str(folder), **options}, NOW)
    reader = StoreFileReader(settings, list(fields or ALL))
    read_rows: list[dict[str, Any]] = []
    for task in reader.partitions():
        for batch in reader.read(task):
            read_rows += batch.to_pylist()
    return read_rows


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Ninety messages of two topics, stored a second apart, in three log files."""
    store = Store.open(tmp_path / "store", _small(), now_ms=NOW, pid=1)
    for number in range(90):
        draft = Draft(
            topic="paid" if number % 3 else "orders",
            queue_id=number % 2,
            body=b"%d" % number * 300,
            properties=b"UNIQ_KEY\x01K%d\x02" % number,
            born_host=HOST,
            store_host=HOST,
        )
        store.append(draft, NOW + number * 1000)
    store.close(NOW)
    return tmp_path / "store"


def _small() -> Any:
    from roquet.store.config import StoreConfig

    return StoreConfig(log_file_size=FILE, queue_file_entries=100)


def test_all_messages_come_in_the_order_of_the_log(ours: Path) -> None:
    read_rows = rows(ours)
    assert [row["body"][:2].rstrip(b"%") for row in read_rows] == [
        (b"%d" % number * 300)[:2] for number in range(90)
    ]
    assert [row["position"] for row in read_rows] == sorted(row["position"] for row in read_rows)
    assert len(list((ours / "commitlog").iterdir())) == 3


def test_a_topic_a_pattern_and_a_time_choose(ours: Path) -> None:
    assert {row["topic"] for row in rows(ours)} == {"orders", "paid"}
    assert len(rows(ours, topic="orders")) == 30
    assert len(rows(ours, topic="orders,paid")) == 90
    assert len(rows(ours, topicPattern="or.*")) == 30
    assert len(rows(ours, topicPattern="(?!paid).*")) == 30, "Python's expressions, as anywhere"
    assert rows(ours, topic="other") == []
    some = rows(ours, startingTime=str(NOW + 10_000), endingTime=str(NOW + 20_000))
    assert [row["body"][:2] for row in some] == [b"%d" % number for number in range(10, 20)]


def test_tasks_share_the_bytes_and_hold_each_message_once(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_splits, "SPLIT_BYTES_MIN", 5_000)
    parts = plan_splits(ours, parse_store({"store": str(ours), "maxPartitions": "7"}, NOW).source)
    assert 5 <= len(parts) <= 9
    assert len(rows(ours, maxPartitions="7")) == 90
    positions = [row["position"] for row in rows(ours, maxPartitions="7")]
    assert positions == sorted(set(positions))


def change_bits(folder: Path, position: int, bits: int) -> None:
    path = files(folder)[position // FILE]
    raw = bytearray(path.read_bytes())
    raw[position % FILE] ^= bits
    path.write_bytes(raw)


def test_a_damaged_record_is_an_error_a_row_or_stepped_over(ours: Path) -> None:
    victim = rows(ours)[40]
    change_bits(ours, victim["position"] + 100, 0xFF)
    with pytest.raises(RecordError, match=r"checksum of the body disagrees; badRecords=true"):
        rows(ours)
    assert len(rows(ours, failOnDataLoss="false")) == 89
    read_rows = rows(ours, *PROBLEMS, badRecords="true")
    assert len(read_rows) == 90
    (bad,) = [row for row in read_rows if row["problem"]]
    assert bad["problem"] == "the checksum of the body disagrees"
    assert bad["position"] == victim["position"]
    assert bad["size"] == len(bad["body"])


def test_bodies_that_are_restored_to_very_much_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_records, "UNFOLDED_MAX", 5_000)
    store = Store.open(tmp_path, _small(), now_ms=NOW, pid=1)
    for _ in range(20):
        body = zlib.compress(bytes(1_000))
        store.append(
            Draft("orders", 0, body, b"", 0, sys_flag=1, born_host=HOST, store_host=HOST), NOW
        )
    store.close(NOW)
    assert [row["body"] for row in rows(tmp_path)] == [bytes(1_000)] * 20


def test_a_body_that_cannot_be_restored_is_a_damaged_place(ours: Path) -> None:
    victims = [rows(ours)[number] for number in (0, 40, 41)]
    for victim in victims:
        change_bits(ours, victim["position"] + 39, SysFlag.COMPRESSED)
    with pytest.raises(RecordError, match=r"queue 0 offset 0: body is not zlib.*badRecords=true"):
        rows(ours)
    assert len(rows(ours, failOnDataLoss="false")) == 87
    assert len(rows(ours, failOnDataLoss="false", topic="orders")) == 29, "one of the three"
    assert rows(ours, decompress="false")[40]["body"] == victims[1]["body"]
    assert len(rows(ours, ("position", "bigint"))) == 90, "nobody asks for bodies"
    read_rows = rows(ours, *PROBLEMS, badRecords="true")
    assert [row["position"] for row in read_rows] == sorted(row["position"] for row in read_rows)
    bad = [row for row in read_rows if row["problem"]]
    assert [row["position"] for row in bad] == [victim["position"] for victim in victims]
    assert all(victim["body"] in row["body"] for victim, row in zip(victims, bad, strict=True))
    assert all(row["size"] == len(row["body"]) for row in bad)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def missing(folder: Path) -> None:
    files(folder)[1].unlink()


def cut(folder: Path) -> None:
    files(folder)[1].write_bytes(files(folder)[1].read_bytes()[:9_000])


def emptied(folder: Path) -> None:
    files(folder)[1].write_bytes(b"")


def zeroed(folder: Path) -> None:
    files(folder)[1].write_bytes(bytes(FILE))


def holed(folder: Path) -> None:
    raw = bytearray(files(folder)[1].read_bytes())
    raw[9_000:20_000] = bytes(11_000)
    files(folder)[1].write_bytes(raw)


def renamed(folder: Path) -> None:
    files(folder)[0].rename(folder / "commitlog" / ("0" * 12 + "99999999"))


@pytest.mark.parametrize("harm", [missing, cut, emptied, zeroed, holed, renamed])
def test_a_gap_in_the_middle_of_a_log_is_reported(ours: Path, harm: Callable[[Path], None]) -> None:
    harm(ours)
    with pytest.raises(RecordError, match="badRecords=true"):
        rows(ours)
    read_rows = rows(ours, *PROBLEMS, badRecords="true")
    whole = [row for row in read_rows if not row["problem"]]
    assert len(rows(ours, failOnDataLoss="false")) == len(whole) < 90
    covered = sum(row["size"] for row in read_rows if row["problem"])
    if harm is not renamed:
        assert covered >= 11_000 - 1_000, "all that is missing is told"
    if harm is holed:
        assert len(whole) > 70, "what comes behind the hole is there"


def test_a_preallocated_file_is_harmless(ours: Path) -> None:
    (ours / "commitlog" / f"{FILE * 3:020d}").write_bytes(bytes(FILE))
    assert len(rows(ours)) == 90


def test_files_of_something_else_are_named(tmp_path: Path) -> None:
    (tmp_path / ("0" * 20)).write_bytes(b"PAR1" * 5_000)
    with pytest.raises(RecordError, match="this is no commit log"):
        rows(tmp_path)


def test_missing_gigabytes_are_a_row(ours: Path) -> None:
    last = files(ours)[-1]
    last.rename(last.with_name(f"{2**40:020d}"))
    read_rows = rows(ours, ("problem", "string"), ("size", "int"), badRecords="true")
    assert max(row["size"] for row in read_rows) == 2**31 - 1


def test_a_store_in_use_is_readable(tmp_path: Path) -> None:
    store = Store.open(tmp_path, _small(), now_ms=NOW, pid=1)
    draft = Draft(topic="t", queue_id=0, body=b"x", properties=b"", born_host=HOST, store_host=HOST)
    store.append(draft, NOW)
    assert len(rows(tmp_path)) == 1
    store.append(draft, NOW)
    assert [row["queue_offset"] for row in rows(tmp_path)] == [0, 1]
    store.close(NOW)


def expected(kind: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    path = VECTORS / f"{kind}.expected.jsonl"
    with path.open() if path.exists() else gzip.open(f"{path}.gz", "rt") as lines:
        for line in lines:
            case = json.loads(line)
            if case["in"]["what"] == "message":
                yield case["in"], case["out"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_genuine_directory_gives_every_message_of_its_queues(kind: str, tmp_path: Path) -> None:
    with tarfile.open(VECTORS / f"{kind}.tar.xz") as archive:
        wanted = [member for member in archive.getmembers() if "commitlog" in member.name]
        unpack(archive, tmp_path, wanted)
    fields = ["topic", "queue_id", "queue_offset", "position", "size", "properties"]
    typed = [(name, TYPES[name]) for name in fields]
    rows_by_position = {row["position"]: row for row in rows(tmp_path, *typed)}
    for value, out in expected(kind):
        row = rows_by_position[out["physical_offset"]]
        assert row["size"] == out["size"], value
        assert row["topic"] == out["stored_topic"]
        assert (row["queue_id"], row["queue_offset"]) == (
            out["stored_queue_id"], out["stored_queue_offset"],
        )  # fmt: skip
        assert dict(row["properties"]) == out["properties"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"namesrv": "a:1"}, "option 'namesrv' is for brokers"),
        ({"tags": "red"}, "option 'tags' is for brokers"),
        ({"badRecord": "true"}, "no option 'badRecord'; did you mean 'badRecords'"),
        ({"badRecords": "some"}, "badRecords"),
        ({"columns": "bodi"}, "no column 'bodi'"),
    ],
)
def test_options_without_effect_on_files_are_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_store({"store": "/x", **options}, NOW)


def test_a_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory on this machine"):
        rows(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="holds no commit log"):
        rows(tmp_path)


def test_a_file_that_went_away_is_named(ours: Path) -> None:
    settings = parse_store({"store": str(ours)}, NOW)
    part = LogSplit(str(ours / "commitlog" / ("9" * 20)), 0, 0, 10)
    with pytest.raises(RecordError, match="is gone: retention deleted it meanwhile"):
        list(store_files.LogSplitReader(settings, ("body",), part).batches())


def test_the_source_has_a_schema_and_refuses_to_stream_files(ours: Path) -> None:
    source = RoquetDataSource({"store": str(ours), "badRecords": "true", "columns": "body"})
    assert source.schema() == "body binary, problem string"
    schema = StructType().add("body", "binary").add("problem", "string")
    assert fields_of(schema) == [("body", "binary"), ("problem", "string")]
    assert isinstance(source.reader(schema), StoreFileReader)
    with pytest.raises(ConfigError, match=r"for spark\.read"):
        source.streamReader(schema).initialOffset()
