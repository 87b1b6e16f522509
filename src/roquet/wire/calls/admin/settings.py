"""A running broker's settings, read and changed."""

from typing import ClassVar

import msgspec

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode
from roquet.wire.signing import ACCESS_KEY


class UpdateSettings(Call[Reply], frozen=True, kw_only=True):
    """Change all settings of the body, or none; the body is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_BROKER_CONFIG

    access_key: str | None = msgspec.field(default=None, name=ACCESS_KEY)
    """The user who asks: the signature adds it."""


class SettingsReply(Reply, frozen=True, kw_only=True):
    """Settings as the text of a properties file, and their version."""

    version: str
    """The JSON of a DataVersion."""


class GetSettings(Call[SettingsReply], frozen=True, kw_only=True):
    """Get all settings."""

    code: ClassVar = RequestCode.GET_BROKER_CONFIG
    reply: ClassVar = SettingsReply
