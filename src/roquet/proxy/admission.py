"""Admission: who makes a request to the proxy, and whether he may."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from roquet.log_records import logger
from roquet.net.address import host_of
from roquet.proxy.access import ProxyAccess
from roquet.proxy.caller import Caller, address_of, caller_of
from roquet.rules.bounded_cache import BoundedCache
from roquet.rules.proxy.status import ProxyRefusal

log = logger(__name__)

HOSTS_REMEMBERED: Final = 256
"""Hosts whose refusal was logged: each is logged once until the reason changes."""

Context: TypeAlias = Any  # grpc.aio's, which has no types


class Admission:
    """Admits the requests of a proxy's clients."""

    def __init__(self, access: ProxyAccess | None = None) -> None:
        """Without `access` everybody may do everything."""
        self._access = access
        self.address_of = address_of
        """From a peer, as gRPC writes it, to its `ip:port`; raises ProxyRefusal for a stranger."""
        self._complaints: BoundedCache[str, str] = BoundedCache(HOSTS_REMEMBERED)

    def admit(self, context: Context, method: str, request: Any = None) -> Caller:
        """The caller of a request. Raises ProxyRefusal.

        Without a request it is that of a stream, whose requests are admitted one by one.
        """
        known = context.invocation_metadata() or ()
        metadata = {name: value for name, value in known if isinstance(value, str)}
        address = self.address_of(context.peer())
        if self._access is not None:
            self._check(self._access, metadata, method, request, address)
        return caller_of(metadata, address, context.time_remaining())

    def _check(
        self,
        access: ProxyAccess,
        metadata: Mapping[str, str],
        method: str,
        request: Any,
        address: str,
    ) -> None:
        try:
            user = access.authenticate(metadata)
            if request is not None:
                access.authorize(user, method, request, address)
        except ProxyRefusal as error:
            host, reason = host_of(address), f"{error!s:.512}"
            if self._complaints.get(host) != reason:
                self._complaints.put(host, reason)
                log.warning("refused %s of %s: %s", method, host, reason)
            raise
