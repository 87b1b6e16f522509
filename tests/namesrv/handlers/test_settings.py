import logging
from pathlib import Path
from typing import Any

import pytest
from tests.namesrv.conftest import FakePeer
from tests.raising import raises

from roquet.model.errors import CallRefused, ConfigError
from roquet.namesrv.handlers.settings import KEYS, read_settings, settings, update
from roquet.namesrv.state import NameServerState
from roquet.observe.log_levels import apply_log_levels
from roquet.wire.calls.admin.namesrv import GetNameServerSettings, UpdateNameServerSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import read_properties


def told(state: NameServerState) -> dict[str, str]:
    return read_properties(settings(state, GetNameServerSettings(), FakePeer()).body.decode())


def change(state: NameServerState, text: str | bytes) -> None:
    body = text if isinstance(text, bytes) else text.encode()
    update(state, UpdateNameServerSettings(body=body), FakePeer())


def test_settings_are_told_under_their_genuine_names(state: NameServerState) -> None:
    found = told(state)
    ours = {key: text for key, text in found.items() if key in KEYS or key == "configBlackList"}
    assert ours == {
        "listenPort": "9876",
        "bindAddress": "0.0.0.0",
        "scanNotActiveBrokerInterval": "5000",
        "orderMessageEnable": "false",
        "enableAllTopicList": "true",
        "deleteTopicWithBrokerRegistration": "false",
        "supportActingMaster": "false",
        "notifyMinBrokerIdChanged": "false",
        "logLevels": "",
        "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    }


def test_every_genuine_setting_is_told_and_kept(
    state: NameServerState, caplog: pytest.LogCaptureFixture
) -> None:
    found = told(state)
    assert len(found) == 41
    assert (found["clusterTest"], found["waitSecondsForService"]) == ("false", "45")
    assert found["returnOrderTopicConfigToBroker"] == "true"
    for _ in range(2):
        change(state, "waitSecondsForService=9\nclusterTest=false")
    assert told(state) == found | {"waitSecondsForService": "9"}
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warnings == ["waitSecondsForService=9 has no effect here"]


def test_a_setting_is_changed_while_it_runs(state: NameServerState) -> None:
    change(state, "orderMessageEnable=true\nenableAllTopicList = false\nunheardOf=3\n")
    assert (state.config.order_messages, state.config.all_topics) == (True, False)
    assert told(state)["orderMessageEnable"] == "true"


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"]
)
def test_settings_on_the_black_list_are_refused(state: NameServerState, key: str) -> None:
    with raises(
        CallRefused, code=ResponseCode.NO_PERMISSION, remark="Can not update config in black list."
    ):
        change(state, f"orderMessageEnable=true\n{key}=/tmp/x")
    assert not state.config.order_messages, "all or none"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\xff\xfe", "string2Properties error"),
        ("orderMessageEnable=perhaps", "neither true nor false"),
        ("logLevels=LOUD", "logLevels: 'LOUD' is none of DEBUG"),
        ("listenPort=1", "listenPort is read at the start"),
    ],
)
def test_an_impossible_setting_is_refused_with_the_reason(
    state: NameServerState, text: Any, why: str
) -> None:
    with pytest.raises(CallRefused, match=why) as refusal:
        change(state, text)
    is_text = "string2Properties" in why
    wrong = ResponseCode.SYSTEM_ERROR if is_text else ResponseCode.INVALID_PARAMETER
    assert refusal.value.code == wrong


def test_a_setting_that_stays_as_it_is_is_no_change(state: NameServerState) -> None:
    change(state, "listenPort=9876\n")
    change(state, "")


def test_log_levels_change_while_it_runs(state: NameServerState) -> None:
    net = logging.getLogger("roquet.net")
    try:
        change(state, "logLevels=WARNING,roquet.net:DEBUG")
        assert (net.level, told(state)["logLevels"]) == (10, "WARNING,roquet.net:DEBUG")
        change(state, "orderMessageEnable=true")
        assert net.level == logging.DEBUG
        change(state, "logLevels=")
        assert net.level == logging.NOTSET
    finally:
        apply_log_levels("")


def test_apaches_keys_are_read(caplog: pytest.LogCaptureFixture) -> None:
    config = read_settings(
        {
            "listenPort": "99",
            "bindAddress": "127.0.0.1",
            "orderMessageEnable": "true",
            "scanNotActiveBrokerInterval": "7000",
            "kvConfigPath": "/data/namesrv/kvConfig.json",
            "enableControllerInNamesrv": "true",
            "rocketmqHome": "/opt/rocketmq",
            "serverWorkerThreads": "8",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": "9100",
        },
        "namesrv.conf",
    )
    assert (config.port, config.host, config.order_messages) == (99, "127.0.0.1", True)
    assert (config.scan_ms, config.directory) == (7_000, Path("/data/namesrv"))
    assert (config.metrics_exporter, config.metrics_port) == ("PROM", 9100)
    assert config.unused["enableControllerInNamesrv"] == "true"
    assert caplog.messages == ["namesrv.conf: serverWorkerThreads=8 has no effect here"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("listenPrt", "1", "did you mean 'listenPort'"),
        ("listenPort", "x", "c: listenPort: 'x' is not a whole number"),
        ("enableAllTopicList", "x", "neither true nor false"),
        ("metricsExporterType", "x", "c: metricsExporterType: 'x' is none of"),
        ("kvConfigPath", "/a/b.json", "the file is called kvConfig.json here"),
    ],
)
def test_a_wrong_line_is_refused(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read_settings({key: value}, "c")
