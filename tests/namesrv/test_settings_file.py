from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.namesrv.settings_file import read_settings


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
