"""A wrong setting is reported when it is created, with the accepted types."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
import pytest

from roquet.broker.settings.config import BrokerConfig
from roquet.model.config_check import CheckedConfig, check_least
from roquet.model.errors import ConfigError
from roquet.namesrv.config import NameServerConfig
from roquet.net.tls import ServerTls
from roquet.store.config import StoreConfig


class Colour(Enum):
    RED = 1
    BLUE = 2


class Listener(Protocol):
    def notify(self) -> None: ...


class Settings(CheckedConfig, frozen=True, kw_only=True):
    count: int = 1
    share: float = 0.5
    quick: bool = True
    name: str | None = None
    names: tuple[str, ...] = ()
    words: Mapping[str, str] = {}
    colour: Colour = Colour.RED
    place: Path | None = None
    limit: Annotated[int | None, "a note"] = None
    listener: Listener | None = None
    call: Callable[[], None] | None = None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"count": "x"}, "count: 'x' is not a whole number"),
        ({"count": True}, "count: True is not a whole number"),
        ({"count": None}, "count: None is not a whole number"),
        ({"share": "x"}, "share: 'x' is not a number"),
        ({"quick": 1}, "quick: 1 is not True or False"),
        ({"name": b"x"}, "name: b'x' is not a text or None"),
        ({"names": "a:1"}, "names: 'a:1' is not a tuple"),
        ({"words": ["x"]}, "words: ['x'] is not a mapping"),
        ({"colour": "RED"}, "colour: 'RED' is not one of Colour.RED, Colour.BLUE"),
        ({"place": "x"}, "place: 'x' is not a Path or None"),
        ({"limit": "x"}, "limit: 'x' is not a whole number or None"),
        ({"coun": 1}, "coun: Settings has no such setting; did you mean 'count'?"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_takes(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(**settings)
    assert str(caught.value) == text


def test_an_equivalent_type_and_a_protocol_are_accepted() -> None:
    settings = Settings(share=1, names=["a"], listener=5, call=5, words={})  # type: ignore[arg-type]
    assert settings.share == 1
    assert list(settings.names) == ["a"]


def test_a_changed_setting_is_looked_at_too() -> None:
    with pytest.raises(ConfigError, match="count: 'x'"):
        msgspec.structs.replace(Settings(), count="x")


def test_a_number_that_is_too_small_is_named() -> None:
    check_least(Settings(), {"count": 1, "name": 5})
    with pytest.raises(ConfigError, match="count: 0 is less than 1"):
        check_least(Settings(count=0), {"count": 1})


@pytest.mark.parametrize(
    ("kind", "settings", "text"),
    [
        (BrokerConfig, {"port": "x"}, "port: 'x' is not a whole number"),
        (BrokerConfig, {"name_servers": "a:9876"}, "name_servers: 'a:9876' is not a tuple"),
        (BrokerConfig, {"prt": 1}, "prt: BrokerConfig has no such setting; did you mean 'port'?"),
        (NameServerConfig, {"port": "x"}, "port: 'x' is not a whole number"),
        (NameServerConfig, {"tls": 5}, "tls: 5 is not a ServerTls or None"),
        (StoreConfig, {"log_file_size": 1.5}, "log_file_size: 1.5 is not a whole number"),
        (ServerTls, {"cert": 5}, "cert: 5 is not a text or a Path"),
    ],
)
def test_servers_say_what_is_wrong_as_clients_do(
    kind: type[msgspec.Struct], settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**settings)
    assert str(caught.value) == text
