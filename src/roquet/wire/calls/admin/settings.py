"""A running broker's settings, read and changed."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class UpdateSettings(Call[Reply], frozen=True, kw_only=True):
    """Change all settings of the body, or none; the body is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_BROKER_CONFIG


class SettingsReply(Reply, frozen=True, kw_only=True):
    """Settings as the text of a properties file, and their version."""

    version: str
    """The JSON of a DataVersion."""


class GetSettings(Call[SettingsReply], frozen=True, kw_only=True):
    """Get all settings."""

    code: ClassVar = RequestCode.GET_BROKER_CONFIG
    reply: ClassVar = SettingsReply
