"""Dead letters become a table with reasons; chosen ones are sent again, once."""

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.spark.conftest import send_columns
from tests.spark.jobs.conftest import ArchivedTopic, MakeSpark

from roquet.lake.open_table import table_location
from roquet.lake.queue_offsets import QueueOffsets
from roquet.model.errors import ConfigError, ConnectFailed, RoquetError, UsageError
from roquet.model.route import TopicRoute
from roquet.net.blocking import BlockingChannel
from roquet.spark.cluster.cluster_client import ClusterClient
from roquet.spark.jobs.repair import repair_job
from roquet.spark.jobs.repair.letter_table import read_letters
from roquet.spark.jobs.repair.repair_job import Params, RepairProgress, count_letters, run
from roquet.spark.jobs.repair.resend_log import ResendDecision, ResendLog
from roquet.wire.call import Call
from roquet.wire.calls.send import Send, SendBatch

DEAD = "%DLQ%billing"


class LetterTable:
    """A group's dead-letter topic, and the table that repairs make of it."""

    def __init__(self, archived_topic: ArchivedTopic, eager: MakeSpark, root: Path | str) -> None:
        self.archived_topic, self.eager, self.root = archived_topic, eager, root
        self.sent = 0
        archived_topic.make(DEAD, queues=1)

    def add_dead_letters(self, count: int, topic: str = "again", **more: str) -> None:
        for address in self.archived_topic.topic.running.broker_addrs:
            bodies = [b"letter %d" % (self.sent + at) for at in range(count)]
            pairs = [
                {"DLQ_ORIGIN_TOPIC": topic, "UNIQ_KEY": f"ID{self.sent + at}", "DELAY": "0",
                 "KEYS": f"k{self.sent + at}", "TAGS": "new", "colour": "red", **more}
                for at in range(count)
            ]  # fmt: skip
            kind = pa.map_(pa.string(), pa.string())
            properties = pa.array([list(one.items()) for one in pairs], kind)
            send_columns(address, DEAD, 0, body=bodies, properties=properties)
            self.sent += count

    def run(self, **params: Any) -> RepairProgress:
        options = {"namesrv": self.archived_topic.topic.namesrv, "timeout": "5s"}
        arguments = {"group": "billing", "directory": str(self.root), "options": options}
        return run(Params(**{**arguments, **params}), self.eager)

    def add_and_run(self, count: int, topic: str = "again") -> None:
        self.add_dead_letters(count, topic)
        self.run()

    @property
    def ids(self) -> tuple[str, ...]:
        letters = read_letters(table_location(str(self.root)))
        return tuple(sorted(letters["letter_id"].to_pylist()))


@pytest.fixture
def letter_table(archived_topic: ArchivedTopic, eager: MakeSpark, tmp_path: Path) -> LetterTable:
    return LetterTable(archived_topic, eager, tmp_path / "letters")


def test_letters_become_a_table_with_reasons(letter_table: LetterTable) -> None:
    letter_table.add_dead_letters(2)
    assert letter_table.run() == RepairProgress(letters=4, new=4)
    rows = read_letters(table_location(str(letter_table.root)))
    assert set(rows["state"].to_pylist()) == {"dead"}
    assert set(rows["origin_topic"].to_pylist()) == {"again"}
    assert set(rows["reason"].to_pylist()) == {"given up after 0 failures"}
    assert sorted(rows["origin_id"].to_pylist()) == ["ID0", "ID1", "ID2", "ID3"]


def test_a_further_run_adds_new_letters(letter_table: LetterTable) -> None:
    letter_table.add_and_run(2)
    assert letter_table.run() == RepairProgress(letters=4)
    letter_table.add_dead_letters(1)
    assert letter_table.run() == RepairProgress(letters=6, new=2)
    assert len(set(letter_table.ids)) == 6


def test_chosen_letters_go_back_once(letter_table: LetterTable) -> None:
    letter_table.add_and_run(3)
    some = letter_table.ids[:4]
    done = letter_table.run(resend=True, ids=some)
    assert (done.chosen, done.sent, done.before) == (4, 4, 0)
    assert len(letter_table.archived_topic.bodies()) == 4
    done = letter_table.run(resend=True, ids=letter_table.ids)
    assert (done.chosen, done.sent, done.before) == (6, 2, 4)
    assert letter_table.archived_topic.bodies() == sorted(b"letter %d" % at for at in range(6))
    assert letter_table.run(resend=True, ids=letter_table.ids).sent == 0


def test_a_resent_letter_is_a_new_message(letter_table: LetterTable) -> None:
    letter_table.add_and_run(1)
    letter_table.run(resend=True, ids=("ID0",))
    [row] = letter_table.archived_topic.rows().to_pylist()
    properties = dict(row["properties"])
    assert (row["tag"], row["keys"], properties["colour"]) == ("new", "k0", "red")
    assert properties["RESENT_FROM"] == "ID0"
    assert properties["ROQUET_FROM"] == "%DLQ%billing/broker-a/0/0"
    assert properties["UNIQ_KEY"] != "ID0"
    assert "DLQ_ORIGIN_TOPIC" not in properties


def check_that_the_next_run_ends_what_dies(
    table: LetterTable, patch: pytest.MonkeyPatch, sends: int
) -> None:
    """The process ends after so many batches; after 2 all have gone, and the note is missing."""
    table.add_and_run(3)
    ask, count = ClusterClient.ask_once, 0

    def dying(self: ClusterClient, broker: str, call: Call[Any]) -> Any:
        nonlocal count
        if isinstance(call, SendBatch) and count >= sends:
            raise KeyboardInterrupt
        count += isinstance(call, SendBatch)
        return ask(self, broker, call)

    with patch.context() as patched:
        patched.setattr(ClusterClient, "ask_once", dying)
        patched.setattr(ResendLog, "done", lambda *_: None)
        with pytest.raises(KeyboardInterrupt) if sends < 2 else nullcontext():
            table.run(resend=True, ids=table.ids)
    assert table.run(resend=True, ids=table.ids[:1]).finished == 6 - 3 * sends
    assert table.archived_topic.bodies() == sorted(b"letter %d" % at for at in range(6))


@pytest.mark.parametrize("sends", [0, 1, 2])
def test_a_run_that_dies_is_ended_by_the_next(
    letter_table: LetterTable, monkeypatch: pytest.MonkeyPatch, sends: int
) -> None:
    check_that_the_next_run_ends_what_dies(letter_table, monkeypatch, sends)


def test_copies_that_come_to_their_queues_late_do_not_go_twice(
    letter_table: LetterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_table.add_and_run(3)
    with monkeypatch.context() as patch:
        patch.setattr(ResendLog, "done", lambda *_: None)  # it dies before it notes that
        letter_table.run(resend=True, ids=letter_table.ids)
    latest = ClusterClient.latest

    def early(self: ClusterClient) -> QueueOffsets:
        ends = latest(self)
        return dict.fromkeys(ends, 0) if self.settings.topics == ("again",) else ends

    monkeypatch.setattr(ClusterClient, "latest", early)
    assert letter_table.run(resend=True, ids=letter_table.ids).finished == 0
    monkeypatch.undo()
    assert len(letter_table.archived_topic.bodies()) == 6


def test_letters_wait_for_the_master_of_their_queue(
    letter_table: LetterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_table.add_and_run(1)
    route = ClusterClient.route

    def without_broker(self: ClusterClient, topic: str) -> TopicRoute:
        whole = route(self, topic)
        queues, brokers = (
            [data for data in datas if data.broker_name == "broker-a"]
            for datas in (whole.queue_datas, whole.broker_datas)
        )
        return msgspec.structs.replace(whole, queue_datas=queues, broker_datas=brokers)

    def read_then_lose(cluster: ClusterClient, _: Any) -> dict[Any, Any]:
        monkeypatch.setattr(ClusterClient, "route", without_broker)
        return {}

    monkeypatch.setattr(repair_job, "read_originals", read_then_lose)
    options = {"namesrv": letter_table.archived_topic.topic.namesrv, "timeout": "1ms"}
    with pytest.raises(ConnectFailed, match="broker 'broker-b' has no master now"):
        letter_table.run(resend=True, ids=letter_table.ids, options=options)
    monkeypatch.undo()
    assert letter_table.archived_topic.bodies() == []
    assert letter_table.run(resend=True, ids=letter_table.ids).finished == 2
    brokers = [broker for broker, *_ in letter_table.archived_topic.places()]
    assert brokers == ["broker-a", "broker-b"]


def test_copies_in_a_topic_that_was_recreated_meanwhile_are_not_sent_twice(
    letter_table: LetterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the queues of the deleted one ended says nothing of those that the copies are in."""
    letter_table.add_and_run(6)
    first = letter_table.ids
    letter_table.run(resend=True, ids=first)
    letter_table.add_and_run(2)
    second = tuple(sorted({*letter_table.ids} - {*first}))
    decide = ResendLog.decide

    def and_then_it_is_made_anew(self: ResendLog, *args: Any) -> ResendDecision:
        made = decide(self, *args)
        letter_table.archived_topic.recreate()
        return made

    with monkeypatch.context() as patch:
        patch.setattr(ResendLog, "decide", and_then_it_is_made_anew)
        patch.setattr(ResendLog, "done", lambda *_: None)  # it dies before it notes that
        letter_table.run(resend=True, ids=second)
    assert len(letter_table.archived_topic.bodies()) == 4
    assert letter_table.run(resend=True, ids=second).finished == 0
    assert len(letter_table.archived_topic.bodies()) == 4


def test_retries_of_pulled_and_popped_messages_are_read_but_not_those_of_other_groups(
    letter_table: LetterTable,
) -> None:
    own = ["%RETRY%billing", "%RETRY%billing+again", "%RETRY%billing_again"]
    others = ["%RETRY%billing_eu", "%RETRY%billing_eu+again"]
    for topic in (*own, *others):
        letter_table.archived_topic.make(topic, queues=1)
        address = letter_table.archived_topic.topic.running.broker_addrs[0]
        call = Send(
            producer_group="t", topic=topic, queue_id=0, born_timestamp=1, body=topic.encode()
        )
        with closing(BlockingChannel(address)) as channel:
            channel.call(call)
    letter_table.run(retries=True)
    letters = read_letters(table_location(str(letter_table.root)))
    assert sorted(letters["body"].to_pylist()) == [topic.encode() for topic in own]


def test_letters_without_an_original_topic_stay(letter_table: LetterTable) -> None:
    letter_table.add_and_run(1, topic="%RETRY%billing")
    done = letter_table.run(resend=True, ids=letter_table.ids)
    assert (done.chosen, done.sent, done.lost) == (2, 0, 2)
    with pytest.raises(RoquetError, match="2 of the chosen letters cannot be sent"):
        repair_job.raise_if_unsendable(done)


def test_counts_are_by_topic_tag_and_day(letter_table: LetterTable) -> None:
    letter_table.add_and_run(2)
    letter_table.run(resend=True, ids=letter_table.ids[:1])
    counts = count_letters(Params(group="billing", directory=str(letter_table.root)))
    assert counts.num_rows == 1
    [row] = counts.to_pylist()
    assert (row["origin_topic"], row["tag"], row["letters"], row["sent"]) == ("again", "new", 4, 1)


def test_the_old_topic_may_have_gone(letter_table: LetterTable) -> None:
    letter_table.add_and_run(1, topic="gone")
    with pytest.raises(UsageError, match="topic 'gone' is unknown"):
        letter_table.run(resend=True, ids=letter_table.ids)
    letters = read_letters(table_location(str(letter_table.root)))
    assert pc.sum(pc.is_valid(letters["letter_id"])).as_py() == 2


def test_a_group_without_letters_is_an_error(letter_table: LetterTable) -> None:
    with pytest.raises(UsageError, match="group 'bilings' has no dead letters"):
        letter_table.run(group="bilings")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"resend": True}, "--resend needs --where"),
        ({"ids": ("a",)}, "add --resend"),
        ({"resend": True, "ids": ("a",), "where": "true"}, "exclude each other"),
        ({"options": {"tags": "x"}}, "option 'tags' is not for repairs"),
    ],
)
def test_impossible_parameters_are_an_error(params: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        repair_job.check_params(Params(group="billing", directory="d", **params))


def test_an_unknown_id_is_an_error(letter_table: LetterTable) -> None:
    letter_table.add_and_run(1)
    with pytest.raises(UsageError, match="no letter of group 'billing' has the id 'ID77'"):
        letter_table.run(resend=True, ids=("ID77",))


@pytest.fixture
def object_letters(archived_topic: ArchivedTopic, eager: MakeSpark, s3: object) -> LetterTable:
    return LetterTable(archived_topic, eager, "s3://lake/letters")


@pytest.mark.spark_suite
def test_letters_in_an_object_store_are_kept_and_sent_once(object_letters: LetterTable) -> None:
    object_letters.add_dead_letters(2)
    assert object_letters.run() == RepairProgress(letters=4, new=4)
    object_letters.add_dead_letters(1)
    assert object_letters.run() == RepairProgress(letters=6, new=2)
    chosen = object_letters.ids[:4]
    assert object_letters.run(resend=True, ids=chosen).sent == 4
    done = object_letters.run(resend=True, ids=object_letters.ids)
    assert (done.sent, done.before, done.finished) == (2, 4, 0)
    assert len(object_letters.archived_topic.bodies()) == 6
    counts = count_letters(Params(group="billing", directory=str(object_letters.root)))
    assert [(row["letters"], row["sent"]) for row in counts.to_pylist()] == [(6, 6)]


@pytest.mark.spark_suite
@pytest.mark.parametrize("sends", [1, 2])
def test_a_run_in_an_object_store_that_dies_is_ended_by_the_next(
    object_letters: LetterTable, monkeypatch: pytest.MonkeyPatch, sends: int
) -> None:
    check_that_the_next_run_ends_what_dies(object_letters, monkeypatch, sends)


def test_a_second_repair_in_an_object_store_sends_nothing(
    object_letters: LetterTable, s3: object
) -> None:
    object_letters.add_dead_letters(1)
    object_letters.run()
    root = table_location(str(object_letters.root))
    with ResendLog(root), pytest.raises(RoquetError, match="another repair of s3://lake/letters"):
        object_letters.run(resend=True, ids=object_letters.ids)
    assert object_letters.archived_topic.bodies() == []
    assert object_letters.run(resend=True, ids=object_letters.ids).sent == 2
