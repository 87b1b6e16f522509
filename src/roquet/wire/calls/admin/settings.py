"""A running broker: its settings, limits of cold reads, and clean-ups that also happen later."""

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


class CleanQueues(Call[Reply], frozen=True, kw_only=True):
    """Delete the files of queues whose messages retention has deleted."""

    code: ClassVar = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanTopics(Call[Reply], frozen=True, kw_only=True):
    """Delete the queues of topics that have no settings any more."""

    code: ClassVar = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpired(Call[Reply], frozen=True, kw_only=True):
    """Delete the files of the log that are old enough, at any hour."""

    code: ClassVar = RequestCode.DELETE_EXPIRED_COMMITLOG


class SetColdReadLimits(Call[Reply], frozen=True, kw_only=True):
    """Limit the cold reads of groups; the body has lines `group=bytes`, as a properties file."""

    code: ClassVar = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG


class RemoveColdReadLimit(Call[Reply], frozen=True, kw_only=True):
    """Remove a group's limit; the body is its name."""

    code: ClassVar = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG


class GetColdReadLimits(Call[Reply], frozen=True, kw_only=True):
    """All limits; the reply's body is a ColdReadLimitTable."""

    code: ClassVar = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO


class SetReadAhead(Call[Reply], frozen=True, kw_only=True):
    """Change how the kernel reads ahead in the log's files."""

    code: ClassVar = RequestCode.SET_COMMITLOG_READ_MODE

    read_ahead_mode: str = msgspec.field(default="", name="READ_AHEAD_MODE")
    """Number of a `madvise` mode: 0 is normal, 1 is random."""


class ColdReadLimitTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits in bytes; Apache's broker writes this without a class of its own."""

    runtime_table: dict[str, object] = {}
    """Groups whose cold reads are counted."""
    config_table: dict[str, int] = {}
    """Limits that operators have set, by group."""
    cg_cold_read_threshold: int = 0
    """Limit of a group without one of its own."""
    global_cold_read_threshold: int = 0
    global_acc: int = 0
    """Bytes of cold reads of all groups in the current period."""
