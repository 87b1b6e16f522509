from pathlib import Path
from typing import Any

import pytest
from tests.broker.conftest import not_none

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.tables.groups import Groups
from roquet.broker.tables.saved_table import TableFile
from roquet.model.errors import StoreFull
from roquet.model.names import SYSTEM_GROUPS
from roquet.model.topic import DataVersion, GroupTable, SubscriptionGroup
from roquet.store.filesystem.files import RealFiles
from roquet.store.filesystem.memory_files import MemoryFiles

NOW = 1_700_000_000_000
GENUINE = Path(__file__).parents[2] / "vectors" / "config"


def groups_of(files: MemoryFiles | None = None, **settings: Any) -> Groups:
    file = TableFile(files, Path("/config/subscriptionGroup.json")) if files else None
    return Groups(file, RuntimeSettings(BrokerConfig(**settings)), NOW)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_table_of_apaches_broker_is_read_unchanged(version: str, tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_bytes((GENUINE / version / "subscriptionGroup.json").read_bytes())
    group = not_none(
        Groups(TableFile(RealFiles(), path), RuntimeSettings(BrokerConfig()), NOW).get("CG_main")
    )
    assert (group.retry_max_times, group.retry_queue_nums, group.consume_enable) == (16, 1, True)


def test_the_system_groups_are_there() -> None:
    assert {group.group_name for group in groups_of()} == SYSTEM_GROUPS


def test_a_group_is_made_at_first_sight_and_kept() -> None:
    files = MemoryFiles()
    groups = groups_of(files)
    assert groups.find("billing", NOW) == SubscriptionGroup(group_name="billing")
    assert groups_of(files).get("billing") is None, "not with a write of its own"
    groups.save()
    assert groups_of(files).get("billing") is not None


def test_a_known_group_is_found_with_its_settings() -> None:
    groups = groups_of()
    groups.put(SubscriptionGroup(group_name="billing", retry_max_times=3), NOW)
    assert not_none(groups.find("billing", NOW)).retry_max_times == 3


def test_no_group_is_made_where_that_is_off_but_for_the_systems_own() -> None:
    groups = groups_of(auto_create_group=False)
    assert groups.find("billing", NOW) is None
    assert groups.find("CID_RMQ_SYS_TRANS_2", NOW) is not None


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 121, "été"])
def test_no_group_is_made_of_an_illegal_name(name: str) -> None:
    assert groups_of().find(name, NOW) is None


def test_a_removed_group_is_gone() -> None:
    files = MemoryFiles()
    groups = groups_of(files)
    groups.find("billing", NOW)
    groups.change_now(groups.begin_remove("billing", NOW))
    groups.change_now(groups.begin_remove("billing", NOW))
    assert groups.get("billing") is None
    assert groups_of(files).get("billing") is None


def test_each_change_is_another_edition() -> None:
    groups = groups_of()
    before = groups.version.counter
    groups.find("billing", NOW)
    groups.put(SubscriptionGroup(group_name="billing"), NOW)
    assert groups.version.counter == before + 1, "the same settings again are no change"


def test_forbidden_topics_of_a_group_survive_a_restart() -> None:
    files = MemoryFiles()
    groups = groups_of(files)
    assert groups.may_read("g", "t")
    groups.change_now(groups.begin_forbid("g", "t", NOW, readable=False))
    groups.change_now(groups.begin_forbid("g", "u", NOW, readable=False))
    again = groups_of(files)
    assert [again.may_read("g", topic) for topic in ("t", "u", "v")] == [False, False, True]
    assert again.may_read("h", "t")
    before = again.version
    again.change_now(again.begin_forbid("g", "t", NOW, readable=False))
    assert again.version == before, "that is no news"
    for topic in ("t", "u"):
        again.change_now(again.begin_forbid("g", topic, NOW, readable=True))
    assert groups_of(files).forbidden == {}


def test_other_forbidden_bits_of_an_apache_table_stay() -> None:
    groups = groups_of(MemoryFiles())
    groups.forbidden = {"g": {"t": 1}}
    assert groups.may_read("g", "t")
    groups.change_now(groups.begin_forbid("g", "t", NOW, readable=False))
    groups.change_now(groups.begin_forbid("g", "t", NOW, readable=True))
    assert groups.forbidden == {"g": {"t": 1}}


def test_a_deleted_topic_is_no_longer_forbidden() -> None:
    groups = groups_of(MemoryFiles())
    for topic in ("t", "u"):
        groups.change_now(groups.begin_forbid("g", topic, NOW, readable=False))
    groups.change_now(groups.begin_forbid("h", "t", NOW, readable=False))
    groups.forget_topics(["t", "v"], NOW)
    assert groups.forbidden == {"g": {"u": 4}}
    before = groups.version
    groups.forget_topics(["t"], NOW)
    assert groups.version == before


def test_several_groups_are_changed_in_one_save() -> None:
    files = MemoryFiles()
    groups = groups_of(files)
    before = groups.version.counter
    made = [SubscriptionGroup(group_name=name) for name in ("a", "b")]
    groups.change_now(groups.begin_put(made, NOW))
    groups.change_now(groups.begin_put(made, NOW))
    assert groups.version.counter == before + 1
    assert groups_of(files).get("b") == made[1]


def test_automatic_creation_may_be_switched() -> None:
    settings = RuntimeSettings(BrokerConfig())
    groups = Groups(None, settings, NOW)
    settings.change({"auto_create_group": "false"}, NOW)
    assert groups.find("new", NOW) is None
    settings.change({"auto_create_group": "true"}, NOW)
    assert groups.find("new", NOW) is not None


class FullDisk(MemoryFiles):
    full = False

    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        if self.full:
            raise StoreFull("no room")
        super().replace(path, data, keep=keep)


def test_a_change_that_cannot_be_saved_is_undone_and_fails_again_when_repeated() -> None:
    files = FullDisk()
    groups = groups_of(files)
    groups.put(SubscriptionGroup(group_name="old"), NOW)
    files.full = True
    for _ in range(2):
        with pytest.raises(StoreFull):
            groups.put(SubscriptionGroup(group_name="billing"), NOW)
        with pytest.raises(StoreFull):
            groups.change_now(groups.begin_remove("old", NOW))
        with pytest.raises(StoreFull):
            groups.change_now(groups.begin_forbid("billing", "orders", NOW, readable=False))
    files.full = False
    groups.put(SubscriptionGroup(group_name="billing"), NOW)
    saved = groups_of(files)
    assert (saved.get("billing") is not None, saved.get("old") is not None) == (True, True)
    assert groups.may_read("billing", "orders")
    assert saved.may_read("billing", "orders")


def test_the_groups_of_a_master_replace_the_own_ones() -> None:
    groups = groups_of()
    groups.put(SubscriptionGroup(group_name="own"), NOW)
    table = GroupTable(
        subscription_group_table={"a": SubscriptionGroup(group_name="a")},
        forbidden_table={"a": {"t": 4}},
        data_version=DataVersion(counter=90),
    )
    groups.copy(table)
    assert (groups.get("own"), groups.get("a") is not None) == (None, True)
    assert groups.get("TOOLS_CONSUMER") is not None
    assert not groups.may_read("a", "t")
    assert (groups.version.counter, groups.unsaved) == (90, True)
    groups.save()
    groups.copy(table)
    assert not groups.unsaved


def test_an_older_table_of_groups_only_adds_to_them() -> None:
    groups = groups_of()
    groups.put(SubscriptionGroup(group_name="own"), NOW)
    version = groups.version
    table = GroupTable(subscription_group_table={"a": SubscriptionGroup(group_name="a")})
    groups.copy(table, only_more=True)
    assert groups.get("own") is not None
    assert groups.get("a") is not None
    assert groups.version == version
