from collections.abc import Callable
from typing import Any

from roquet.wire.calls.admin.settings import GetSettings, SettingsReply, UpdateSettings
from roquet.wire.codes import RequestCode

Agree = Callable[[str, type[Any]], None]


def test_headers_agree_with_javas(agree: Agree) -> None:
    agree("GetBrokerConfigResponseHeader", SettingsReply)


def test_codes_are_those_of_operators() -> None:
    assert UpdateSettings.code == RequestCode.UPDATE_BROKER_CONFIG
    assert GetSettings.code == RequestCode.GET_BROKER_CONFIG
    assert GetSettings.reply is SettingsReply
