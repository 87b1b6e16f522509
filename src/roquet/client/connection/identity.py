"""Client identity: the client id, and generated message ids."""

from itertools import count
from typing import Final

from roquet.client.config import ClientConfig
from roquet.model.errors import UsageError
from roquet.net.address import routable_address
from roquet.net.loop import CURRENT_PROCESS
from roquet.wire.records.message_id import month_start_ms, unique_key

_MONTH_MS: Final = 31 * 86_400_000
_clients: Final = count(1)


class ClientIdentity:
    """The id and address of one client of this process."""

    def __init__(self, config: ClientConfig) -> None:
        self.pid = CURRENT_PROCESS.pid
        self.ip = config.client_ip or routable_address()
        instance = config.instance or f"{self.pid}#{config.clock.now_ms()}{next(_clients):06d}"
        self.client_id = f"{self.ip}@{instance}"
        self.keys = MessageIdGenerator(self.ip, self.pid, config.rng.getrandbits(32))

    def check_process(self) -> None:
        """Raise UsageError in a forked child: the connections belong to the parent."""
        if CURRENT_PROCESS.pid != self.pid:
            raise UsageError(
                "this client was made before a fork and cannot be used in the child: "
                "make a new one there"
            )


class MessageIdGenerator:
    """Generates unique message ids from ip, process, client, time and a counter."""

    def __init__(self, ip: str, pid: int, client: int) -> None:
        from ipaddress import ip_address  # here: an import of the client does not pay for it

        self._head = unique_key(ip_address(ip).packed, pid, client, 0, 0)[:-12]
        self._count = 0
        self._month_ms = 0
        self._now_ms = -1
        self._prefix = ""
        """The id without its counter; the same for all messages of one millisecond."""

    def make(self, now_ms: int) -> str:
        """Return the next id."""
        if now_ms != self._now_ms:
            self._begin(now_ms)
        self._count = count = self._count + 1 & 0xFFFF
        return self._prefix + "%04X" % count  # noqa: UP031 - half the time of an f-string

    def _begin(self, now_ms: int) -> None:
        since = now_ms - self._month_ms
        if not 0 <= since < _MONTH_MS:
            self._month_ms = month_start_ms(now_ms)
            since = now_ms - self._month_ms
        self._now_ms, self._prefix = now_ms, f"{self._head}{since:08X}"
