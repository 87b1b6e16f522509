import logging
from pathlib import Path

import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.broker.settings.config_file import load, read, rewrite_properties
from roquet.model.errors import ConfigError
from roquet.net.channel import PLAIN
from roquet.net.tls import KeyPassword, ServerTls, TlsMode

GENUINE = """
# the file that ships with Apache RocketMQ, and a little more
brokerClusterName = DefaultCluster
brokerName = broker-b
brokerId = 0
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
deleteWhen = 04
fileReservedTime = 48
namesrvAddr = 10.0.0.1:9876;10.0.0.2:9876
storePathRootDir = /data/store
storePathCommitLog = /data/store/commitlog
autoCreateTopicEnable=false
mapedFileSizeCommitLog=1048576
mapedFileSizeConsumeQueue=6001
diskMaxUsedSpaceRatio = 88
listenPort: 10921
brokerIP1 = 192.168.1.5
"""


def test_an_apache_file_means_the_same_here() -> None:
    config = read(GENUINE, "broker.conf", {})
    assert config == BrokerConfig(
        broker_name="broker-b",
        cluster_name="DefaultCluster",
        sync_flush=True,
        delete_hour=4,
        retention=48 * 3_600_000,
        name_servers=("10.0.0.1:9876", "10.0.0.2:9876"),
        store_dir=Path("/data/store"),
        auto_create_topic=False,
        log_file_size=1_048_576,
        queue_file_entries=301,
        expire_ratio=0.88,
        port=10_921,
        advertise="192.168.1.5",
    )


def test_our_own_words_carry_units_and_may_be_written_with_dashes() -> None:
    text = (
        "broker-name = b\nflush_interval = 250ms\nfree-min = 1GiB\nretention = 3d\nsync-flush: on"
    )
    config = read(text, "broker.conf", {})
    assert (config.broker_name, config.flush_interval, config.free_min) == ("b", 250, 1 << 30)
    assert (config.retention, config.sync_flush) == (3 * 86_400_000, True)


def test_an_apache_key_without_effect_is_one_warning_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = read("brokerName=b\nsendMessageThreadPoolNums=16", "broker.conf", {})
    assert config.unused == {"sendMessageThreadPoolNums": "16"}
    assert [record.getMessage() for record in caplog.records] == [
        "broker.conf line 2: sendMessageThreadPoolNums: no effect here. One event loop serves "
        "every connection and request: there are no pools, locks and buffers to size."
    ]


def test_a_key_unknown_to_both_is_an_error_with_the_nearest_right_one() -> None:
    with pytest.raises(
        ConfigError, match=r"line 2: brokerNmae: unknown.*did you mean 'brokerName'"
    ):
        read("\nbrokerNmae = b", "broker.conf", {})


def test_a_value_that_cannot_be_names_the_file_its_line_and_key() -> None:
    with pytest.raises(ConfigError, match=r"^broker.conf line 2: listenPort: 70000 is no port"):
        read("brokerName = b\nlistenPort = 70000", "broker.conf", {})


def test_the_log_lies_where_it_lies() -> None:
    with pytest.raises(ConfigError, match=r"storePathCommitLog: the log lies in /data/commitlog"):
        read("storePathRootDir=/data\nstorePathCommitLog=/fast", "broker.conf", {})


def test_the_environment_wins_over_the_file() -> None:
    environ = {"ROQUET_FLUSH_INTERVAL": "2s", "NAMESRV_ADDR": "10.0.0.9:9876"}
    config = read("flush_interval = 1s", "broker.conf", environ)
    assert (config.flush_interval, config.name_servers) == (2_000, ("10.0.0.9:9876",))


def test_a_wrong_value_of_the_environment_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="ROQUET_PORT: 'x' is not a whole number"):
        read("", "broker.conf", {"ROQUET_PORT": "x"})


def test_the_file_names_the_name_servers_before_the_environment_does() -> None:
    config = read("namesrvAddr=10.0.0.1:1", "broker.conf", {"NAMESRV_ADDR": "10.0.0.9:9876"})
    assert config.name_servers == ("10.0.0.1:1",)


def test_a_backslash_continues_a_line_and_escapes_colons() -> None:
    config = read("namesrvAddr=10.0.0.1\\:1;\\\n   10.0.0.2\\:2\n! a comment", "f", {})
    assert config.name_servers == ("10.0.0.1:1", "10.0.0.2:2")


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.conf: cannot be read"):
        load(tmp_path / "nope.conf", {})


def test_a_file_is_read_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\n", "utf-8")
    assert load(path, {}).broker_name == "b"


def test_registrations_stay_within_what_name_servers_forgive() -> None:
    assert read("registerNameServerPeriod=1", "f", {}).register_interval == 10_000
    assert read("register_interval=10m", "f", {}).register_interval == 60_000


def test_apaches_directory_is_the_default() -> None:
    assert read("", "f", {}).store_dir == Path.home() / "store"
    assert read("storePathRootDir=${user.home}/x", "f", {}).store_dir == Path.home() / "x"


def test_delay_levels_are_read_in_either_spelling() -> None:
    for line in ("messageDelayLevel = 1s 5s 2h", "message-delay-levels=1s 5s 2h"):
        assert read(line, "f", {}).message_delay_levels == (1_000, 5_000, 7_200_000)
    assert len(BrokerConfig().message_delay_levels) == 18
    with pytest.raises(ConfigError, match=r"f line 1: messageDelayLevel: '1x' in '1s 1x'"):
        read("messageDelayLevel = 1s 1x", "f", {})


def test_delivery_times_are_limited_in_either_spelling() -> None:
    assert BrokerConfig().timer_max_delay == 3 * 86_400_000
    assert not BrokerConfig().recall_message
    for line in ("timerMaxDelaySec = 3456000", "timer-max-delay = 40d"):
        assert read(line, "f", {}).timer_max_delay == 40 * 86_400_000
    assert read("recallMessageEnable = true", "f", {}).recall_message
    for line in ("timerMaxDelaySec = 3456001", "timer_max_delay = 100ms"):
        with pytest.raises(ConfigError, match="1 s to 40 days"):
            read(line, "f", {})


def test_tls_and_replies_are_set_in_both_spellings() -> None:
    text = "tls.server.certPath=/c.pem\ntls_key=/k.pem\ntls-client-ca=/a.pem\n"
    config = read(text + "storeReplyMessageEnable=false\ntls_ca=~/ca.pem", "f", {})
    assert config.server_tls == ServerTls(
        cert=Path("/c.pem"), key=Path("/k.pem"), client_ca=Path("/a.pem")
    )
    assert config.tls_ca == Path("~/ca.pem").expanduser()
    assert not config.store_reply_messages
    assert BrokerConfig().store_reply_messages
    assert BrokerConfig().server_tls is None
    assert BrokerConfig().calls() is PLAIN


def test_a_tls_properties_wins_over_the_file_that_names_it(tmp_path: Path) -> None:
    properties = tmp_path / "tls.properties"
    properties.write_text(
        "tls.test.mode.enable=false\ntls.server.certPath=/c.pem\ntls.server.keyPath=/k.pem\n"
        "tls.server.keyPassword=hush\ntls.enable=true\ntls.client.trustCertPath=/a.pem\n"
        "tls.client.certPath=/cc.pem\ntls.client.keyPassword=hush\n"
    )
    config = read(f"tls_cert=/other.pem\ntls.config.file={properties}\n", "f", {})
    password = KeyPassword("hush")
    assert config.server_tls == ServerTls(
        cert=Path("/c.pem"), key=Path("/k.pem"), key_password=password, mode=TlsMode.PERMISSIVE
    )
    assert (config.tls_enable, config.tls_ca, config.tls_verify) == (True, Path("/a.pem"), False)
    assert (config.tls_client_cert, config.tls_check_host) == (Path("/cc.pem"), False)
    assert config.tls_client_key_password == password
    environ = {"ROQUET_TLS_MODE": "enforcing", "ROQUET_TLS_PROPERTIES": str(properties)}
    assert read("", "f", environ).server_tls == ServerTls(
        cert=Path("/c.pem"), key=Path("/k.pem"), key_password=password, mode=TlsMode.ENFORCING
    )
    with pytest.raises(ConfigError, match="/nowhere: cannot be read"):
        read("tls.config.file=/nowhere", "f", {})


@pytest.mark.parametrize(
    ("before", "given", "after"),
    [
        ("", {"region": ("regionId", "x")}, "regionId=x\n"),
        ("a = 1\n", {"region": ("regionId", "x")}, "a = 1\nregionId=x\n"),
        ("a = 1", {"region": ("regionId", "x")}, "a = 1\nregionId=x\n"),
        ("region = a\nb = 1\n", {"region": ("regionId", "x")}, "regionId=x\nb = 1\n"),
        ("region=a\nregionId=b\n", {"region": ("region", "x")}, "region=a\nregion=x\n"),
        ("regionId = a\\\n  b\nc=1", {"region": ("regionId", "x")}, "regionId=x\nc=1"),
        ("# regionId = a\n", {"region": ("regionId", "x")}, "# regionId = a\nregionId=x\n"),
        ("a=1\\", {"region": ("regionId", "x")}, "a=1\\\nregionId=x\n"),
    ],
)
def test_a_value_is_changed(before: str, given: dict[str, tuple[str, str]], after: str) -> None:
    assert rewrite_properties(before, given) == after


def test_the_page_of_metrics_is_set_in_both_spellings() -> None:
    apache = read(
        "metricsExporterType=PROM\nmetricsPromExporterPort=9100\nmetricsPromExporterHost=::1\n",
        "broker.conf",
        {},
    )
    ours = read(
        "metrics-port = 9100\nmetrics_host = ::1\n", "b", {"ROQUET_METRICS_EXPORTER": "PROM"}
    )
    for config in (apache, ours):
        shown = config.metrics_exporter, config.metrics_port, config.metrics_host
        assert shown == ("PROM", 9100, "::1")
    with pytest.raises(ConfigError, match=r"broker\.conf line 1: metricsExporterType"):
        read("metricsExporterType=PROMETHEUS", "broker.conf", {})
