"""Name servers: their settings, read and changed while they run."""

from collections.abc import Mapping

from roquet.admin.brokers import decoded_settings
from roquet.admin.client import AdminClient, check_done_everywhere
from roquet.model.errors import CallError, CallRefused, UsageError
from roquet.wire.calls.admin.namesrv import GetNameServerSettings, UpdateNameServerSettings
from roquet.wire.codes import ResponseCode
from roquet.wire.properties_file import escape_properties


async def settings(
    admin: AdminClient,
) -> tuple[Mapping[str, Mapping[str, str]], Mapping[str, CallError]]:
    """Settings of every name server by address, each sorted, and errors by address."""
    replies, failed = await admin.ask_name_servers(GetNameServerSettings())
    return {address: decoded_settings(reply) for address, reply in replies.items()}, failed


async def configure(admin: AdminClient, changes: Mapping[str, str]) -> list[str]:
    """Change settings of every name server until its next start; returns the addresses.

    Each changes all of them or none. Raises the first error when all refuse, UsageError for a value
    that they do not take, and RoquetError when some refuse: it says where the change was made.
    """
    body = escape_properties(changes).encode()
    replies, failed = await admin.ask_name_servers(UpdateNameServerSettings(body=body))
    first = None if replies else next(iter(failed.values()), None)
    if isinstance(first, CallRefused) and first.code == ResponseCode.INVALID_PARAMETER:
        raise UsageError(f"name servers do not take that: {first.remark}")
    return check_done_everywhere(list(replies), failed, "changed at")
