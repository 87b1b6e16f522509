"""Replica needs: how many logs have to hold a message, and which members a controller misses.

settings of a broker ─▶ inSyncReplicas, minInSyncReplicas
                     ─▶ controllerAddr ──▶ members of the group, and who of them lives
"""

from collections.abc import Mapping, Sequence

import msgspec

from roquet.admin import controllers
from roquet.admin.client import AdminClient
from roquet.admin.controllers import CONTROLLERS_KEY, ReplicaMember, has_controller
from roquet.model.errors import RoquetError
from roquet.rules.replication.acknowledgement import BrokerRole


class GroupNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Needs of the brokers of one name for taking messages, by settings and controller."""

    logs: int | None = None
    """Logs that have to hold a message; None: not known."""
    members: Sequence[ReplicaMember] = ()
    """Members that the controller knows; empty where there is none."""
    controller_fault: str | None = None
    """Why no controller tells of the members; None if one does, or there is none."""


async def group_needs(
    admin: AdminClient, broker: str, settings: Mapping[str, str] | None
) -> GroupNeeds:
    """Needs of the brokers of a name, by the settings of one of them; None: none has answered."""
    if settings is None:
        return GroupNeeds()
    logs: int | None = None
    try:
        logs = needed_logs(settings)
        if not has_controller(settings):
            return GroupNeeds(logs=logs)
        named = controllers.controllers_named(settings[CONTROLLERS_KEY], CONTROLLERS_KEY)
        group = await controllers.group(admin, broker, named)
    except RoquetError as error:
        return GroupNeeds(logs=logs, controller_fault=str(error))
    return GroupNeeds(logs=logs, members=group.members)


def needed_logs(settings: Mapping[str, str]) -> int:
    """Logs that have to hold a message before its sender is answered, the master's included.

    With a controller also the number without which no message is taken. Raises RoquetError for
    settings that are no numbers.
    """
    if has_controller(settings):
        least = count(settings, "minInSyncReplicas")
        waits_for_all = settings.get("allAckInSyncStateSet") == "true"
        return least if waits_for_all else max(least, count(settings, "inSyncReplicas"))
    if settings.get("brokerRole") != BrokerRole.SYNC_MASTER:
        return 1
    return count(settings, "inSyncReplicas")


def count(settings: Mapping[str, str], key: str) -> int:
    """A number among the settings, 1 if it is not there. Raises RoquetError if it is none."""
    text = settings.get(key, "1")
    if not (text.isascii() and text.isdecimal()):
        raise RoquetError(f"{key}={text!r} is no number")
    return int(text)
