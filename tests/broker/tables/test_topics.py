from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import failing, not_none

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.tables.saved_table import TableFile
from roquet.broker.tables.topics import Topics, is_system_topic, system_topic_names
from roquet.model import names
from roquet.model.errors import StoreFull
from roquet.model.topic import DataVersion, TopicConfig
from roquet.rules.topic_id import is_other_topic
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles

NOW = 1_700_000_000_000
GENUINE = Path(__file__).parents[2] / "vectors" / "config"


def topics_of(files: MemoryFiles | None = None, **settings: Any) -> Topics:
    file = TableFile(files, Path("/config/topics.json")) if files else None
    return Topics(file, BrokerConfig(**settings), NOW)


def create(topics: Topics, topic: str, **wanted: Any) -> TopicConfig | None:
    asked = {"default_topic": names.AUTO_CREATE_TOPIC, "queue_count": 4, "unit_mode": False}
    return topics.create_for_send(topic, **{**asked, **wanted}, now_ms=NOW)


def test_the_system_topics_are_those_of_apache() -> None:
    genuine = not_none(TableFile(RealFiles(), GENUINE / "5.5.0" / "topics.json").read(Topics.kind))
    ours = {topic.topic_name: topic for topic in topics_of()}
    for name in ours:
        assert ours[name] == genuine.topic_config_table[name]
    missing = {name for name in genuine.topic_config_table if name not in ours}
    assert {name for name in missing if name.startswith(("rmq_", "RMQ_"))} == {
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    }, "the genuine broker alone keeps transactions in RocksDB"


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_table_of_apaches_broker_is_read_unchanged(version: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes((GENUINE / version / "topics.json").read_bytes())
    topics = Topics(TableFile(RealFiles(), path), BrokerConfig(), NOW)
    config = topics.get("TopicA")
    assert config == TopicConfig(topic_name="TopicA", read_queue_nums=4, write_queue_nums=4)
    assert topics.get("%RETRY%CG_main") is not None
    assert "TopicB" in topics.sendable


def test_an_unknown_topic_inherits_from_the_default_one() -> None:
    made = create(topics_of(), "orders", queue_count=6)
    assert made == TopicConfig(topic_name="orders", read_queue_nums=6, write_queue_nums=6, perm=6)


def test_no_more_queues_are_made_than_the_default_topic_has() -> None:
    made = not_none(create(topics_of(), "orders", queue_count=100))
    assert (made.read_queue_nums, made.write_queue_nums) == (8, 8)


@pytest.mark.parametrize("count", [0, -4])
def test_a_topic_has_one_queue_at_least(count: int) -> None:
    assert not_none(create(topics_of(), "orders", queue_count=count)).write_queue_nums == 1


def test_a_topic_without_inherit_permission_gives_nothing() -> None:
    topics = topics_of()
    topics.put(TopicConfig(topic_name="plain"), NOW)
    assert create(topics, "orders", default_topic="plain") is None
    assert create(topics, "orders", default_topic="unknown") is None


def test_nothing_is_created_where_that_is_off() -> None:
    assert create(topics_of(auto_create_topic=False), "orders") is None


def test_nothing_is_created_either_when_an_older_run_left_the_default_topic() -> None:
    files = MemoryFiles()
    topics_of(files)
    assert create(topics_of(files, auto_create_topic=False), "orders") is None


def test_a_retry_topic_is_always_created_with_one_queue() -> None:
    made = not_none(create(topics_of(auto_create_topic=False), "%RETRY%billing"))
    assert (made.write_queue_nums, made.perm) == (1, 6)


def test_the_permission_of_a_created_topic_is_a_plain_number() -> None:
    made = not_none(create(topics_of(), "orders"))
    assert type(made.perm) is int  # every pull compares it, and a member of an enum costs more


def test_a_client_in_unit_mode_marks_its_topics() -> None:
    topics = topics_of()
    unit, retry = create(topics, "u", unit_mode=True), create(topics, "%RETRY%g", unit_mode=True)
    assert unit is not None
    assert retry is not None
    assert (unit.topic_sys_flag, retry.topic_sys_flag) == (1, 2)


def test_a_new_topic_is_on_the_disk_at_once() -> None:
    files = MemoryFiles()
    create(topics_of(files), "orders")
    assert topics_of(files).get("orders") is not None


class FullDisk(MemoryFiles):
    full = False

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        if self.full:
            raise StoreFull("no room")
        super().replace(path, data, keep=keep)


def test_a_topic_that_cannot_be_saved_is_not_made() -> None:
    files = FullDisk()
    topics = topics_of(files)
    create(topics, "orders", queue_count=4)
    files.full = True
    with pytest.raises(StoreFull):
        create(topics, "other")
    with pytest.raises(StoreFull):
        topics.put(TopicConfig(topic_name="orders", perm=4), NOW)
    assert "other" not in topics.sendable
    assert topics.sendable["orders"].writable


def test_every_change_is_announced_and_counted() -> None:
    topics, counters = topics_of(), []
    topics.on_change.append(lambda: counters.append(topics.version.counter))
    before = topics.version.counter
    create(topics, "orders")
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1), NOW)
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1), NOW)
    topics.remove("orders", NOW)
    topics.remove("orders", NOW)
    assert counters == [before + 1, before + 2, before + 3], "what changes nothing is no news"


def test_clients_may_not_send_to_what_the_broker_writes_itself() -> None:
    sendable = topics_of().sendable
    assert names.SCHEDULE_TOPIC not in sendable
    assert names.SELF_TEST_TOPIC not in sendable
    assert names.BENCHMARK_TOPIC in sendable


def test_a_removed_topic_cannot_be_sent_to() -> None:
    topics = topics_of()
    create(topics, "orders")
    assert "orders" in topics.sendable
    topics.remove("orders", NOW)
    assert "orders" not in topics.sendable
    assert topics.get("orders") is None


def test_a_groups_retry_topic_keeps_what_it_was_made_with() -> None:
    topics = topics_of()
    topics.create_for_group("%RETRY%g", 3, NOW)
    assert topics.create_for_group("%RETRY%g", 1, NOW).write_queue_nums == 3


def test_system_topics_are_distinguished_from_those_of_users() -> None:
    config = BrokerConfig()
    assert is_system_topic("TBW102", config)
    assert is_system_topic("DefaultCluster", config)
    assert is_system_topic("rmq_sys_anything", config)
    assert not is_system_topic("orders", config)


def test_the_trace_topic_is_there_when_it_is_wanted() -> None:
    assert topics_of().get(names.TRACE_TOPIC) is None
    assert topics_of(trace_topic=True).get(names.TRACE_TOPIC) is not None


def test_several_topics_are_changed_all_or_none() -> None:
    topics = topics_of(MemoryFiles())
    before = topics.version.counter
    topics.put_all([TopicConfig(topic_name="a"), TopicConfig(topic_name="b")], NOW)
    assert topics.version.counter == before + 1
    topics.put_all([], NOW)
    topics.remove_all(["a", "b", "unknown"], NOW)
    topics.remove_all(["unknown"], NOW)
    assert topics.version.counter == before + 2
    assert topics.get("a") is None


def test_a_change_of_settings_is_news_and_brings_topics_that_it_needs() -> None:
    topics, heard = topics_of(auto_create_topic=False), list[str]()
    topics.on_change.append(lambda: heard.append("news"))
    topics.configure(BrokerConfig(auto_create_topic=True), NOW)
    assert topics.get(names.AUTO_CREATE_TOPIC) is not None
    assert create(topics, "orders") is not None
    topics.configure(BrokerConfig(auto_create_topic=False), NOW)
    assert create(topics, "more") is None
    assert len(heard) == 3


def test_system_topics_have_names_whether_or_not_they_are_here() -> None:
    config = BrokerConfig(auto_create_topic=False)
    topics = system_topic_names(config)
    assert {"TBW102", "CHECKPOINT_TOPIC", "broker-a", "rmq_sys_wheel_timer"} < topics
    assert "orders" not in topics


def test_a_topic_without_a_name_of_its_own_has_that_of_its_key() -> None:
    files = MemoryFiles()
    path = Path("/config/topics.json")
    files.contents[path] = b'{"topicConfigTable":{"orders":{"readQueueNums":3}}}'
    config = not_none(Topics(TableFile(files, path), BrokerConfig(), 0).get("orders"))
    assert (config.topic_name, config.read_queue_nums) == ("orders", 3)


def test_a_topic_recreated_in_the_same_millisecond_has_another_id() -> None:
    topics = topics_of()
    create(topics, "orders")
    first = topics.ids["orders"]
    topics.remove("orders", NOW)
    assert "orders" not in topics.ids
    create(topics, "orders")
    assert is_other_topic(first, topics.ids["orders"])


def test_a_topic_keeps_its_id_when_it_is_changed_and_when_its_broker_starts_again() -> None:
    files = MemoryFiles()
    topics = topics_of(files)
    create(topics, "orders", queue_count=4)
    first = topics.ids["orders"]
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8), NOW + 1)
    assert topics.ids["orders"] == topics_of(files).ids["orders"] == first


def test_retry_topics_have_ids_and_system_topics_need_none() -> None:
    topics = topics_of()
    topics.create_for_group("%RETRY%billing", 1, NOW)
    assert list(topics.ids) == ["%RETRY%billing"]


def test_a_topic_that_the_disk_did_not_take_leaves_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = topics_of(MemoryFiles())
    create(topics, "payments")
    before = dict(topics.ids)

    monkeypatch.setattr(topics, "save", failing(StoreFull("the disk is full")))
    with pytest.raises(StoreFull):
        create(topics, "orders")
    assert topics.ids == before


def test_topics_of_a_directory_without_ids_get_some_that_stay(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes((GENUINE / "5.5.0" / "topics.json").read_bytes())
    file = TableFile(RealFiles(), path)
    topic_id = Topics(file, BrokerConfig(), NOW).ids["TopicA"]
    assert topic_id.startswith("adopted-")
    again = Topics(file, BrokerConfig(), NOW + 5)
    assert again.ids["TopicA"] == topic_id
    assert again.has_adopted


def test_a_table_that_was_lost_makes_no_other_topics_of_those_with_messages() -> None:
    topics = Topics(None, BrokerConfig(), NOW, lambda topic: topic == "orders")
    for name in ("orders", "payments"):
        create(topics, name)
    assert topics.ids["orders"].startswith("adopted-")
    assert not topics.ids["payments"].startswith("adopted-")


def test_a_retry_topic_that_a_kill_lost_is_the_same_one_again() -> None:
    ids = []
    for now_ms in (NOW, NOW + 60_000):
        topics = Topics(None, BrokerConfig(), now_ms)
        topics.announce_for_groups({"%RETRY%g": 1}, now_ms)
        ids.append(topics.ids["%RETRY%g"])
    assert ids[0] == ids[1] == "1-0"


def test_a_retry_topic_that_was_deleted_is_another_one_afterwards() -> None:
    deleted: set[str] = set()
    topics = Topics(None, BrokerConfig(), NOW, was_deleted=deleted.__contains__)
    topics.create_for_group("%RETRY%g", 1, NOW)
    first = topics.ids["%RETRY%g"]
    topics.remove("%RETRY%g", NOW)
    deleted.add("%RETRY%g")
    topics.announce_for_groups({"%RETRY%g": 1}, NOW + 5)
    assert is_other_topic(first, topics.ids["%RETRY%g"])


def test_an_id_without_its_topic_is_forgotten() -> None:
    """Killed while a topic was deleted: a genuine broker may have deleted the topic, too."""
    files = MemoryFiles()
    topics = topics_of(files)
    create(topics, "orders")
    topics.ids["gone"] = "1-1"
    topics.touch(NOW)
    topics.save()
    assert list(topics_of(files).ids) == ["orders"]


def test_ids_are_renewed_before_their_topics_are_deleted() -> None:
    files = MemoryFiles()
    topics = topics_of(files)
    create(topics, "orders")
    first = topics.ids["orders"]
    topics.renew_ids(["orders", "unknown"], NOW)
    assert is_other_topic(first, topics_of(files).ids["orders"])
    assert "unknown" not in topics.ids


def test_a_topic_that_is_gone_from_memory_alone_is_not_said_to_be_removed() -> None:
    files = FullDisk()
    topics = topics_of(files)
    create(topics, "orders")
    files.full = True
    for _ in range(2):
        with pytest.raises(StoreFull):
            topics.remove("orders", NOW)
    files.full = False
    topics.remove("orders", NOW)
    assert topics_of(files).get("orders") is None


def test_a_save_that_failed_is_repeated_with_the_next() -> None:
    files = FullDisk()
    topics = topics_of(files)
    create(topics, "orders")
    files.full = True
    with pytest.raises(StoreFull):
        create(topics, "other")
    with pytest.raises(StoreFull):
        topics.put_all([], NOW)
    files.full = False
    topics.put_all([], NOW)
    assert not topics.unsaved


def test_topics_of_a_master_come_with_its_ids_and_its_version() -> None:
    topics = topics_of()
    topics.put(TopicConfig(topic_name="own"), NOW)
    calls: list[int] = []
    topics.on_change.append(lambda: calls.append(1))
    version = DataVersion(counter=90)
    topics.copy([TopicConfig(topic_name="a")], {"a": "1-1", "own": "2-2"}, version, NOW)
    assert (topics.ids["a"], topics.ids["own"], topics.version) == ("1-1", "2-2", version)
    assert not topics.has_adopted
    assert "a" in topics.sendable
    assert (topics.unsaved, len(calls)) == (True, 1)
    topics.save()
    topics.copy([], {"a": "1-1"}, version, NOW)
    assert (topics.unsaved, len(calls)) == (False, 1)


def test_a_topic_of_a_master_without_ids_has_one_that_accuses_nobody() -> None:
    topics = topics_of()
    topics.put(TopicConfig(topic_name="own"), NOW)
    before = topics.ids["own"]
    changed = [TopicConfig(topic_name="a"), TopicConfig(topic_name="own", perm=4)]
    topics.copy(changed, None, DataVersion(counter=3), NOW)
    assert topics.ids["a"] == f"adopted-{NOW}-3"
    assert topics.has_adopted
    assert topics.ids["own"] == before
