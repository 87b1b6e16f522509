import logging
from pathlib import Path

import pytest
from tests.broker.conftest import refuses

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import load
from roquet.broker.settings.runtime_settings import RuntimeSettings
from roquet.broker.settings.settings_format import all_settings
from roquet.model.errors import CallRefused, StoreError, StoreFull
from roquet.store.filesystem.memory_files import MemoryFiles
from roquet.wire.codes import ResponseCode

NOW = 1_700_000_000_000


def test_settings_are_changed_by_apaches_names_and_by_ours() -> None:
    live = RuntimeSettings(BrokerConfig())
    told: list[BrokerConfig] = []
    live.subscribe(told.append)
    wanted = {"brokerPermission": "4", "flushDiskType": "SYNC_FLUSH", "retention": "12h"}
    assert live.change(wanted, NOW)
    after = live.config
    assert (after.permission, after.sync_flush, after.retention) == (4, True, 12 * 3_600_000)
    assert told == [after]
    assert (live.version.counter, live.version.timestamp) == (1, NOW)


def test_a_subscriber_may_ask_for_some_settings_alone() -> None:
    live = RuntimeSettings(BrokerConfig())
    told = list[str]()
    live.subscribe(lambda _: told.append("any"))
    live.subscribe(lambda _: told.append("rights"), "permission", "auto_create_topic")
    live.change({"brokerPermission": "4"}, NOW)
    live.change({"retention": "12h"}, NOW)
    assert told == ["any", "rights", "any"]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"brokerPermission": "6"},
        {"listenPort": "10911"},
        {"brokerId": "0", "brokerRole": "ASYNC_MASTER", "traceOn": "true"},
    ],
)
def test_an_equal_value_is_no_change(wanted: dict[str, str]) -> None:
    live = RuntimeSettings(BrokerConfig())
    live.subscribe(lambda _: pytest.fail("nothing has changed"))
    assert not live.change(wanted, NOW)
    assert live.version.counter == 0


@pytest.mark.parametrize(
    ("line", "code", "remark"),
    [
        ("brokerConfigPath=/tmp/x", ResponseCode.NO_PERMISSION, "Can not update config in black"),
        ("configBlackList=a", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("listenPort=1", ResponseCode.INVALID_PARAMETER, "listenPort=1: it cannot change while"),
        ("messageDelayLevel=1s", ResponseCode.INVALID_PARAMETER, "messageDelayLevel=1s: it cannot"),
        ("storePathCommitLog=/x", ResponseCode.INVALID_PARAMETER, "it cannot change while"),
        ("fileReservedTime=long", ResponseCode.INVALID_PARAMETER, "fileReservedTime: 'long' is"),
        ("brokerPermission=99", ResponseCode.INVALID_PARAMETER, "brokerPermission: '99'"),
        (
            "brokerRole=SLAVE",
            ResponseCode.INVALID_PARAMETER,
            "it cannot change while the broker runs",
        ),
        ("serverSelectorThreads=many", ResponseCode.INVALID_PARAMETER, "'many' is not a number"),
        ("enableLmq=perhaps", ResponseCode.INVALID_PARAMETER, "neither true nor false"),
        ("forwardTimeout=1\nlistenPort=1", ResponseCode.INVALID_PARAMETER, "a value is one line"),
        ("aclEnable=true", ResponseCode.INVALID_PARAMETER, "open to everybody"),
        ("authenticationEnabled=true", ResponseCode.INVALID_PARAMETER, "it cannot change while"),
        ("brokerPermision=4", ResponseCode.INVALID_PARAMETER, "did you mean 'brokerPermission'"),
        ("=4", ResponseCode.INVALID_PARAMETER, "unknown here"),
        ("regionId=x\nlistenPort=1", ResponseCode.INVALID_PARAMETER, "a value is one line"),
        ("regionId=x\\", ResponseCode.INVALID_PARAMETER, "a value is one line"),
    ],
)
def test_one_invalid_line_prevents_all_changes(line: str, code: ResponseCode, remark: str) -> None:
    live = RuntimeSettings(BrokerConfig())
    before = live.config
    key, _, value = line.partition("=")
    with refuses(code, remark):
        live.change({"flushDiskType": "SYNC_FLUSH", key: value, "longPollingEnable": "no"}, NOW)
    assert live.config is before


def test_a_setting_without_effect_is_saved_and_reported_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName = b1\nskipPreOnline = true\n")
    live = RuntimeSettings(load(path, {}))
    told: list[BrokerConfig] = []
    live.subscribe(told.append)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert live.change({"forwardTimeout": "10999", "skipPreOnline": "true"}, NOW)
        assert live.change({"forwardTimeout": "11000"}, NOW)
    assert [record.getMessage() for record in caplog.records] == [
        "forwardTimeout=10999 has no effect here. "
        "Roles are fixed by brokerRole, or given by a controller."
    ]
    assert live.version.counter == len(told) == 2
    assert path.read_text() == "brokerName = b1\nskipPreOnline = true\nforwardTimeout=11000\n"
    assert load(path, {}) == live.config
    found = dict(all_settings(live.config))
    assert (found["forwardTimeout"], found["skipPreOnline"]) == ("11000", "true")
    assert not live.change({"forwardTimeout": "11000", "appendCkAsync": "false"}, NOW)


def test_settings_that_a_subscriber_rejects_do_not_take_effect(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("retention=72h\n")
    live = RuntimeSettings(load(path, {}))
    before = live.config
    live.checks.append(lambda old, new: "too short" if new.retention < old.retention else None)
    with refuses(ResponseCode.INVALID_PARAMETER, "too short"):
        live.change({"retention": "1h", "brokerPermission": "4"}, NOW)
    assert live.config is before
    assert path.read_text() == "retention=72h\n"
    assert live.change({"retention": "96h"}, NOW)


def test_contradictory_settings_are_refused_while_a_broker_runs(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("retention=72h\n")
    live = RuntimeSettings(load(path, {}))
    with refuses(ResponseCode.INVALID_PARAMETER, "set haSendHeartbeatInterval to 6666 or less"):
        live.change({"haSendHeartbeatInterval": "20000"}, NOW)
    assert path.read_text() == "retention=72h\n"
    assert live.change({"haSendHeartbeatInterval": "20000", "haHousekeepingInterval": "60000"}, NOW)


def test_the_brokers_file_says_it_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# mine\nbrokerName = b1\nfileReservedTime = 48\nbrokerPermission = 6")
    live = RuntimeSettings(load(path, {}))
    live.change({"brokerPermission": "4", "long-polling": "no"}, NOW)
    assert path.read_text() == (
        "# mine\nbrokerName = b1\nfileReservedTime = 48\nbrokerPermission=4\nlong-polling=no\n"
    )
    assert load(path, {}) == live.config
    assert path.with_name("broker.conf.bak").read_text().endswith("brokerPermission = 6")


class FullDisk(MemoryFiles):
    def replace(self, path: Path, data: bytes, *, keep: bool = False) -> None:
        raise StoreFull("no room")


@pytest.mark.parametrize("text", [b"brokerName=b1\n", None], ids=["full disk", "no file"])
def test_nothing_changes_when_the_file_cannot_be_written(text: bytes | None) -> None:
    files = FullDisk()
    if text is not None:
        files.contents[Path("/broker.conf")] = text
    live = RuntimeSettings(BrokerConfig(source=Path("/broker.conf")), files)
    with refuses(ResponseCode.SYSTEM_ERROR, r"/broker\.conf does not take the settings"):
        live.change({"brokerPermission": "4"}, NOW)
    assert live.config.permission == 6


def test_a_failed_save_does_not_block_later_changes(caplog: pytest.LogCaptureFixture) -> None:
    live = RuntimeSettings(BrokerConfig())
    told = list[str]()

    def fail(*_: BrokerConfig) -> None:
        raise StoreError("no room for topics.json")

    live.subscribe(fail)
    live.subscribe(lambda _: told.append("the other"))
    with caplog.at_level(logging.WARNING):
        assert live.change({"brokerPermission": "4"}, NOW)
    assert told == ["the other"]
    assert "no room for topics.json" in caplog.text


def test_a_refused_change_does_not_repeat_a_secret() -> None:
    text = '{"username":"root","password":"hush-hush"}'
    with pytest.raises(CallRefused, match="it cannot change while") as refused:
        RuntimeSettings(BrokerConfig()).change({"initAuthenticationUser": text}, NOW)
    assert "hush" not in str(refused.value)
