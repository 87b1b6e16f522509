from tests.wire.calls.conftest import agree

from roquet.wire.calls.admin.settings import GetSettings, SettingsReply, UpdateSettings
from roquet.wire.codes import RequestCode


def test_headers_agree_with_javas() -> None:
    agree("GetBrokerConfigResponseHeader", SettingsReply)


def test_codes_are_those_of_operators() -> None:
    assert UpdateSettings.code == RequestCode.UPDATE_BROKER_CONFIG
    assert GetSettings.code == RequestCode.GET_BROKER_CONFIG
    assert GetSettings.reply is SettingsReply
