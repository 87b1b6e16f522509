import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.model import settings
from roquet.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1024", 1024),
        ("10b", 10),
        ("1KiB", 1024),
        ("64MiB", 67_108_864),
        ("64 mib", 67_108_864),
        ("1.5GiB", 1_610_612_736),
        ("1GB", 1_000_000_000),
        (" 2kb ", 2000),
        ("3MB", 3_000_000),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert settings.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("10ms", 10),
        ("10s", 10_000),
        ("0.5 s", 500),
        ("2m", 120_000),
        ("2min", 120_000),
        ("72h", 259_200_000),
        ("1d", 86_400_000),
    ],
)
def test_a_time_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert settings.parse_millis(text) == ms


def test_a_time_without_a_unit_could_mean_anything() -> None:
    with pytest.raises(ConfigError, match=r"retention: '72' is not a number with a unit \(ms, s,"):
        settings.parse_millis("72", "retention")


@pytest.mark.parametrize("text", ["", "ten", "10 parsecs", "-1", "1,5GiB", "1e3"])
def test_a_wrong_size_is_named_with_what_was_wanted(text: str) -> None:
    with pytest.raises(ConfigError, match=r"reserve: .*bytes, KiB, MiB or GiB"):
        settings.parse_bytes(text, "reserve")


@given(st.integers(0, 2**50))
def test_whole_bytes_stay_exact(size: int) -> None:
    assert settings.parse_bytes(str(size)) == size


@pytest.mark.parametrize("text", ["true", "YES", " on ", "1"])
def test_a_switch_is_on(text: str) -> None:
    assert settings.parse_bool(text) is True


@pytest.mark.parametrize("text", ["false", "No", "off", "0"])
def test_a_switch_is_off(text: str) -> None:
    assert settings.parse_bool(text) is False


def test_a_switch_that_is_neither_is_an_error() -> None:
    with pytest.raises(ConfigError, match="syncFlush: 'maybe' is neither true nor false"):
        settings.parse_bool("maybe", "syncFlush")


def test_a_whole_number_has_a_least_value() -> None:
    assert settings.parse_int(" 8 ", least=1) == 8
    assert settings.parse_int("-3") == -3
    with pytest.raises(ConfigError, match="queues: 0 is less than 1"):
        settings.parse_int("0", "queues", least=1)


@pytest.mark.parametrize("text", ["", "1.5", "x"])
def test_malformed_whole_numbers_are_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"queues: .* is not a whole number"):
        settings.parse_int(text, "queues")


def test_a_misspelt_name_gets_a_hint() -> None:
    known = ["flushDiskType", "fileReservedTime"]
    assert settings.suggest("flushdisktyp", known) == "; did you mean 'flushDiskType'?"
    assert settings.suggest("colour", known) == ""


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("broker:10911", ("broker", 10911)),
        (" 10.0.0.1:0 ", ("10.0.0.1", 0)),
        ("[::1]:10911", ("::1", 10911)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert settings.parse_address(text) == address


def test_the_port_may_be_left_out_where_there_is_a_usual_one() -> None:
    assert settings.parse_address("broker", port=9876) == ("broker", 9876)
    assert settings.parse_address("[::1]", port=9876) == ("::1", 9876)


@pytest.mark.parametrize("text", ["", "broker", ":10911", "broker:", "broker:x", "broker:65536"])
def test_malformed_addresses_are_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"advertise: .* is not HOST:PORT"):
        settings.parse_address(text, "advertise")


def test_an_address_without_a_port_says_so() -> None:
    with pytest.raises(ConfigError, match="'broker' is not HOST:PORT: the port is missing"):
        settings.parse_address("broker")


@pytest.mark.parametrize("text", ["a:1;b:2", "a:1,b:2", " a:1  b:2 ", "a:1;;b:2;"])
def test_several_addresses_may_be_written_as_people_write_them(text: str) -> None:
    assert settings.parse_addresses(text) == ("a:1", "b:2")


@pytest.mark.parametrize("text", ["", " ", ";"])
def test_no_address_at_all_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="namesrv: no address given"):
        settings.parse_addresses(text, "namesrv")


@given(st.sampled_from(["localhost", "10.0.0.1", "::1", "fe80::1"]), st.integers(0, 65_535))
def test_an_address_that_was_joined_comes_apart_again(host: str, port: int) -> None:
    assert settings.parse_address(settings.join_address(host, port)) == (host, port)


def test_an_address_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="--at: 'HOST:PORT', not 9876"):
        settings.parse_address(9876, "--at")  # type: ignore[arg-type]
