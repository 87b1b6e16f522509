"""Admission: who makes a request, whether he may, and how it ended."""

from typing import Any, TypeAlias

from roquet.proxy.caller import Caller, address_of, caller_of

Context: TypeAlias = Any  # grpc.aio's, which has no types


class Admission:
    """Admits the requests of a proxy's clients."""

    def __init__(self) -> None:
        self.address_of = address_of
        """From a peer, as gRPC writes it, to its `ip:port`; raises ProxyRefusal for a stranger."""

    def admit(self, context: Context) -> Caller:
        """The caller of a request or a stream. Raises ProxyRefusal."""
        address = self.address_of(context.peer())
        return caller_of(context.invocation_metadata() or (), address, context.time_remaining())
