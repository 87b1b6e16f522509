"""ProxyServer: a proxy with its parts, from start to stop."""

from collections.abc import Sequence
from typing import Final, Self

import grpc

from roquet.log_records import logger
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.handlers.receiving import ReceiveHandler
from roquet.proxy.handlers.routes import RouteHandler
from roquet.proxy.handlers.sending import SendHandler
from roquet.proxy.handlers.settling import SettleHandler
from roquet.proxy.handlers.telemetry import TelemetryHandler
from roquet.proxy.handlers.transactions import TransactionHandler
from roquet.proxy.receipts import Deliveries, ReceiptRenewals
from roquet.proxy.service import receive, service, telemetry, unary
from roquet.rules.proxy.renewal import SCAN_PERIOD_MS

log = logger(__name__)

FRAME_SIZE_MAX: Final = 130 * 1024 * 1024
"""Bytes of one request, as the genuine proxy takes them."""

STOP_S: Final = 5
"""Time that requests under way have at a stop."""


class ProxyServer:
    """Serves RocketMQ 5's clients in front of a cluster."""

    def __init__(
        self, namesrv: str | Sequence[str] | None = None, config: ProxyConfig | None = None
    ) -> None:
        self._config = config = config or ProxyConfig()
        self._cluster = cluster = ProxiedCluster(namesrv, config)
        self._clients = clients = ClientTable(config.clock)
        deliveries = Deliveries(cluster)
        self._renewals = renewals = ReceiptRenewals(deliveries, cluster, clients, config.clock)
        settling = SettleHandler(cluster, deliveries, renewals, config.clock)
        routes = RouteHandler(cluster)
        sending = SendHandler(cluster, config)
        receiving = ReceiveHandler(cluster, clients, renewals, settling, config)
        telling = TelemetryHandler(cluster, clients)
        transactions = TransactionHandler(cluster, clients)
        unaries = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "SendMessage": sending.send,
            "RecallMessage": sending.recall,
            "AckMessage": settling.ack,
            "ChangeInvisibleDuration": settling.change,
            "ForwardMessageToDeadLetterQueue": settling.forward,
            "EndTransaction": transactions.end,
            "Heartbeat": telling.heartbeat,
            "NotifyClientTermination": telling.terminate,
        }
        self._methods = {
            **{name: unary(name, handler) for name, handler in unaries.items()},
            "ReceiveMessage": receive(receiving.receive),
            "Telemetry": telemetry(telling.telemetry),
        }
        self.port = 0
        """The port, once the proxy is started."""

    async def start(self) -> None:
        """Open the port; the cluster need not be reachable yet."""
        self._cluster.start()
        size = ("grpc.max_receive_message_length", FRAME_SIZE_MAX)
        out = ("grpc.max_send_message_length", FRAME_SIZE_MAX)
        self._server = grpc.aio.server(options=[size, out, ("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((service(self._methods),))
        self.port = self._server.add_insecure_port(f"{self._config.host}:{self._config.port}")
        await self._server.start()
        clock = self._config.clock
        background = self._cluster.session.background
        background.supervise(self._watch, "clients and receipts", clock)
        log.info("the proxy serves RocketMQ 5's clients at port %d", self.port)

    async def _watch(self) -> None:
        while True:
            await self._config.clock.sleep(SCAN_PERIOD_MS)
            self._clients.expire()
            await self._renewals.step()

    async def close(self) -> None:
        """Stop: requests under way end, unacknowledged messages come again soon."""
        await self._server.stop(STOP_S)
        await self._renewals.close()
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
