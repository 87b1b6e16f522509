"""A broker's settings, read and changed while it runs."""

from typing import ClassVar

from roquet.wire.call import Call, Reply
from roquet.wire.codes import RequestCode


class UpdateSettings(Call[Reply], frozen=True, kw_only=True):
    """Change settings: all of those in the body, or none; it is the text of a properties file."""

    code: ClassVar = RequestCode.UPDATE_BROKER_CONFIG


class SettingsReply(Reply, frozen=True, kw_only=True):
    """The settings as the text of a properties file, and which edition of them it is."""

    version: str
    """The JSON of a DataVersion."""


class GetSettings(Call[SettingsReply], frozen=True, kw_only=True):
    """All settings."""

    code: ClassVar = RequestCode.GET_BROKER_CONFIG
    reply: ClassVar = SettingsReply
