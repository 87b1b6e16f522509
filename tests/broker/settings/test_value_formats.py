import pytest

from roquet.broker.settings.definitions import OWN_NAMES, setting_of
from roquet.model.errors import ConfigError
from roquet.wire.signing import Credentials


def value_of(key: str, text: str) -> object:
    """Value of a key's text, in the unit of our key or of Apache's."""
    _, parse = setting_of(key, key)
    return parse(text, key)


@pytest.mark.parametrize(
    ("ours", "genuine"),
    [
        (("flush_interval", "1s"), ("flushIntervalCommitLog", "1000")),
        (("retention", "2d"), ("fileReservedTime", "48")),
        (("expire_ratio", "0.75"), ("diskMaxUsedSpaceRatio", "75")),
        (("sync_flush", "yes"), ("flushDiskType", "SYNC_FLUSH")),
        (("queue_file_entries", "300"), ("mappedFileSizeConsumeQueue", "6000")),
        (("log_file_size", "1MiB"), ("mapedFileSizeCommitLog", "1048576")),
        (("register_interval", "30s"), ("registerNameServerPeriod", "30000")),
        (("ha_heartbeat_interval", "5s"), ("haSendHeartbeatInterval", "5000")),
        (("ha_batch_size", "32KiB"), ("haTransferBatchSize", "32768")),
        (("broker_role", "SLAVE"), ("brokerRole", "SLAVE")),
    ],
)
def test_both_spellings_mean_the_same(ours: tuple[str, str], genuine: tuple[str, str]) -> None:
    assert OWN_NAMES[genuine[0]] == ours[0]
    assert value_of(*ours) == value_of(*genuine)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("flush_interval = 10", "flush_interval: '10' is not a number with a unit"),
        ("flushIntervalCommitLog = 10s", "flushIntervalCommitLog: '10s' is not a whole number"),
        ("flushIntervalCommitLog =", "'' is not a whole number"),
        ("flushDiskType = FAST", "'FAST' is neither ASYNC_FLUSH nor SYNC_FLUSH"),
        ("listenPort = 70000", "70000 is no port"),
        ("ha_replicas = 10.0.0.1, *", r"'\*' is no IP address and no block"),
        ("quotas = topic:a", "'topic:a' is no quota"),
        ("controllerHeartBeatTimeoutMills = 999", "999 ms is too short, the smallest is 1000 ms"),
        ("controller_heartbeat_timeout = 500ms", "500 ms is too short, the smallest is 1000 ms"),
        ("brokerRole = MASTER", "'MASTER' is none of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("brokerId = -1", "brokerId: -1"),
        ("haMasterAddress = 10.0.0.1", "'10.0.0.1' is not HOST:PORT"),
        ("haTransferBatchSize = 5000000", "is over 4194304, which no replica reads"),
        ("replica_ack = stored", "'stored' is none of appended, flushed"),
        ("tls_mode = strict", "'strict' is none of disabled, permissive, enforcing"),
        ("tls_client_auth = maybe", "'maybe' is none of none, optional, require"),
        ("proxy_protocol_from = 10.0.0.0/8 lb", "'lb' is no IP address and no block"),
        ("deleteWhen = 25", "'25' is no hour"),
        ("deleteWhen = 04;05", "'04;05' is not a whole number"),
        ("diskMaxUsedSpaceRatio = 120", "120 is no percentage"),
        ("expire_ratio = 75", "'75' is not between 0 and 1"),
        ("expire_ratio = much", "'much' is not a number"),
        ("maxMessageSize = 17MiB", "does not fit a frame"),
        ("maxMessageSize = 4MX", "is not a number with a unit"),
        ("autoCreateTopicEnable = maybe", "'maybe' is neither true nor false"),
        ("namesrvAddr = nowhere", "'nowhere' is not HOST:PORT"),
        ("brokerName =", "a value is wanted"),
        ("mappedFileSizeCommitLog = 0", "is too small"),
        ("brokerPermission = 15", "is none of 2"),
        ("defaultMessageRequestMode = PUSH", "'PUSH' is neither PULL nor POP"),
        ("defaultPopShareQueueNum = -2", "-2"),
    ],
)
def test_a_value_that_cannot_be_names_its_key(line: str, complaint: str) -> None:
    key, _, text = line.partition("=")
    with pytest.raises(ConfigError, match=complaint) as caught:
        value_of(key.strip(), text.strip())
    assert str(caught.value).startswith(key.strip())


def test_a_silence_of_a_second_may_mean_that_a_broker_is_dead() -> None:
    assert value_of("controllerHeartBeatTimeoutMills", "1000") == 1_000
    assert value_of("controller_heartbeat_timeout", "1s") == 1_000


def test_no_address_of_a_master_is_none() -> None:
    assert value_of("haMasterAddress", "") is None


def test_credentials_are_read_in_either_form_of_apaches_settings() -> None:
    given = Credentials(access_key="root", secret_key="hush")
    assert value_of("initAuthenticationUser", '{"username":"root","password":"hush"}') == given
    inner = "innerClientAuthenticationCredentials"
    assert value_of(inner, '{"accessKey":"root","secretKey":"hush"}') == given
    assert value_of(inner, "") is None


@pytest.mark.parametrize("text", ["hush", '{"password":"hush"}', '{"username":" "', "{}"])
def test_an_error_about_credentials_repeats_nothing_of_them(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^initAuthenticationUser: wanted is") as error:
        value_of("initAuthenticationUser", text)
    assert "hush" not in str(error.value)


def test_whitelists_are_codes_that_manage_no_users() -> None:
    assert value_of("authenticationWhitelist", "26, 28,") == (26, 28)
    assert value_of("authorizationWhitelist", "") == ()
    with pytest.raises(ConfigError, match="3005 manages users and policies"):
        value_of("authorizationWhitelist", "26,3005")
    with pytest.raises(ConfigError, match="'x' is not a whole number"):
        value_of("authenticationWhitelist", "x")
