"""AdminServer: serves operators by gRPC, at a port of its own and behind an access check."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

import grpc

from roquet import __version__
from roquet.admin.client import AdminClient
from roquet.log_records import logger
from roquet.model.errors import ConfigError, RoquetError
from roquet.model.settings import join_address
from roquet.net.address import LOOPBACK
from roquet.observe.log_levels import apply_log_levels
from roquet.proxy.admin.clients import ClientsAdmin
from roquet.proxy.admin.groups import GroupsAdmin
from roquet.proxy.admin.needs import NEEDS
from roquet.proxy.admin.topics import TopicsAdmin
from roquet.proxy.answers import OK, status_of
from roquet.proxy.caller import address_of
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.handlers.members import MembersHandler
from roquet.proxy.handlers.sending import SendingHandler
from roquet.proxy.protos import admin_pb2 as admin
from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.public_port import bind
from roquet.proxy.request_bytes import check_read, reader
from roquet.rules.access.decision import AccessRequest
from roquet.rules.proxy.status import ProxyRefusal, StatusCode

log = logger(__name__)

NAME: Final = "apache.rocketmq.v2.Admin"

LEVELS: Final = {
    admin.ChangeLogLevelRequest.TRACE: "DEBUG",
    admin.ChangeLogLevelRequest.DEBUG: "DEBUG",
    admin.ChangeLogLevelRequest.INFO: "INFO",
    admin.ChangeLogLevelRequest.WARN: "WARNING",
    admin.ChangeLogLevelRequest.ERROR: "ERROR",
}
"""Our names of the protocol's levels."""

ODD_NAMES: Final = {"QueryMessage": "ListMessage"}
"""Beginnings of the names of messages, by methods that are called otherwise."""

FRAME_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of one request: a test message of 4 MiB and its properties fit."""

CALLS_MAX: Final = 32
"""Requests that are served at a time; one more is refused."""

LOOPBACKS: Final = (LOOPBACK, "localhost")

AdminHandler = Callable[[Any], Awaitable[Any]]
AccessCheck = Callable[[Mapping[str, str], AccessRequest, str], object]
"""Checks a request's metadata, need and `ip:port`; raises ProxyRefusal."""


class AdminServer:
    """Serves what operators ask of one cluster."""

    def __init__(
        self,
        client: AdminClient,
        cluster: ProxiedCluster,
        clients: ClientTable,
        members: MembersHandler,
        sending: SendingHandler,
        config: ProxyConfig,
    ) -> None:
        self._config = config
        self.client = client
        self._clients = clients
        self._node = cluster.session.identity.client_id
        self.check: AccessCheck | None = None
        """None lets everybody do everything, who therefore has to be on this host."""
        groups = GroupsAdmin(client, clients)
        topics = TopicsAdmin(client, cluster, sending, config.clock)
        asked = ClientsAdmin(client, members, topics)
        handlers: Mapping[str, AdminHandler] = {
            "ChangeLogLevel": self.change_log_level,
            "DescribeTopicStatus": topics.describe,
            "ListSubscription": groups.list_subscriptions,
            "DescribeSubscription": groups.describe_subscriptions,
            "DeleteSubscription": groups.delete_subscription,
            "DescribeGroupAccumulation": groups.describe_accumulation,
            "ListConsumerConnection": groups.list_connections,
            "ResetGroupOffset": groups.reset,
            "QueryMessage": topics.query,
            "PrintThreadStackTrace": asked.stacks,
            "VerifyMessage": asked.verify,
            "AdminSendMessage": topics.send,
            "GetConsumerRunningInfo": asked.running_info,
            "GetTopicRoute": topics.route,
            "QueryTimeSpan": groups.query_time_span,
            "GetProxyRuntimeStats": self.runtime_stats,
        }
        self.methods = {name: self._method(name, handler) for name, handler in handlers.items()}
        """Methods of the service by their names."""
        self.port = 0
        """The port, once the server is started."""

    async def __aenter__(self) -> Self:
        host = self._config.admin_host
        if self.check is None and host not in LOOPBACKS:
            raise ConfigError(f"admin_host: {host} is open to others: that needs access control")
        options = [("grpc.max_receive_message_length", FRAME_SIZE_MAX), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS_MAX)
        handlers = grpc.method_handlers_generic_handler(NAME, dict(self.methods))
        self._server.add_generic_rpc_handlers((handlers,))
        wanted = join_address(host, self._config.admin_port or 0)
        self.port = bind(self._server, wanted, "admin_port")
        await self._server.start()
        log.info("operators are served at %s:%d", host, self.port)
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await self._server.stop(None)
        await self.client.__aexit__(kind, error, trace)

    async def change_log_level(
        self, request: admin.ChangeLogLevelRequest
    ) -> admin.ChangeLogLevelResponse:
        """Change the level of this process's log, until it ends."""
        if (level := LEVELS.get(request.level)) is None:
            raise ProxyRefusal(StatusCode.BAD_REQUEST, f"there is no level {request.level}")
        apply_log_levels(level)
        return admin.ChangeLogLevelResponse(remark=f"the level is {level}")

    async def runtime_stats(
        self, _request: admin.GetProxyRuntimeStatsRequest
    ) -> admin.GetProxyRuntimeStatsResponse:
        """Numbers of this proxy's clients; rates of messages are among its metrics."""
        consumers = self._clients.consumers
        return admin.GetProxyRuntimeStatsResponse(
            proxy_name=self._node,
            version=__version__,
            connections=self._clients.streams,
            producers=len(self._clients) - consumers,
            consumers=consumers,
        )

    def _method(self, name: str, handler: AdminHandler) -> Any:
        """A handler in the form of gRPC; its errors become the status of the answer."""
        kind = ODD_NAMES.get(name, name)
        request = getattr(admin, f"{kind}Request")
        response = getattr(admin, f"{kind}Response")
        has_status = "status" in response.DESCRIPTOR.fields_by_name

        async def refuse(context: Any, status: pb.Status) -> Any:
            if not has_status:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, status.message)
            return response(status=status)

        async def answer(message: Any, context: Any) -> Any:
            address = address_of(context.peer())
            try:
                if self.check is not None:
                    self.check(_texts(context.invocation_metadata()), NEEDS[name], address)
                log.info("%s by an operator at %s", name, address)
                found = await handler(check_read(message))
            except RoquetError as error:
                return await refuse(context, status_of(error))
            except Exception as error:
                log.exception("%s failed", name)
                text = f"{type(error).__name__}: {error}"
                return await refuse(context, pb.Status(code=pb.INTERNAL_SERVER_ERROR, message=text))
            if has_status and not found.HasField("status"):
                found.status.CopyFrom(OK)
            return found

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=reader(request),
            response_serializer=response.SerializeToString,
        )


def _texts(metadata: Any) -> Mapping[str, str]:
    return {name: value for name, value in metadata or () if isinstance(value, str)}
