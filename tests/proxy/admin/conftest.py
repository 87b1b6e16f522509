"""An operator of a proxied cluster in virtual time, who calls the service without gRPC."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.proxy.conftest import Context

from roquet.proxy.admin.server import AdminServer
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.proxy import Proxy


class Operator:
    """Makes requests of the Admin service."""

    def __init__(self, server: AdminServer) -> None:
        self.server = server

    async def __call__(self, name: str, request: Any) -> Any:
        """The answer to a request."""
        context = Context({"x-mq-protocol": "GRPC_V2"}, 3)
        return await self.server.methods[name].unary_unary(request, context)

    async def ok(self, name: str, request: Any) -> Any:
        """The answer to a request that is served."""
        answer = await self(name, request)
        assert answer.status.code == pb.OK, answer.status.message
        return answer


@pytest.fixture
async def operator(proxy: Proxy) -> AsyncIterator[Operator]:
    """An operator of a proxy."""
    server = proxy.admin()
    yield Operator(server)
    await server.client.__aexit__(None, None, None)


def resource(name: str) -> pb.Resource:
    return pb.Resource(name=name)
