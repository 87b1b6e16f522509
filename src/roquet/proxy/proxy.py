"""Proxy: the parts of a proxy and what it serves, without the server that takes the requests."""

from collections.abc import Mapping, Sequence

from roquet.admin.client import AdminClient
from roquet.proxy.admin.server import AdminServer
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.handlers.members import MembersHandler
from roquet.proxy.handlers.offsets import OffsetsHandler
from roquet.proxy.handlers.receiving import ReceivingHandler
from roquet.proxy.handlers.routes import RoutesHandler
from roquet.proxy.handlers.sending import SendingHandler
from roquet.proxy.handlers.settling import SettlingHandler
from roquet.proxy.handlers.telemetry import TelemetryHandler
from roquet.proxy.handlers.transactions import TransactionsHandler
from roquet.proxy.receipts import Deliveries, ReceiptRenewals
from roquet.proxy.service import Handler, RpcMethod, stream, telemetry, unary
from roquet.rules.proxy.renewal import SCAN_PERIOD_MS


class Proxy:
    """Serves RocketMQ 5's requests in front of one cluster."""

    def __init__(self, namesrv: str | Sequence[str] | None, config: ProxyConfig) -> None:
        self._clock = config.clock
        self._cluster = cluster = ProxiedCluster(namesrv, config)
        self._clients = clients = ClientTable(config.clock)
        deliveries = Deliveries(cluster)
        self._renewals = renewals = ReceiptRenewals(deliveries, cluster, clients, config.clock)
        settling = SettlingHandler(cluster, deliveries, renewals)
        routes, sending = RoutesHandler(cluster), SendingHandler(cluster, config)
        self._config, self._sending = config, sending
        self._receiving = receiving = ReceivingHandler(cluster, clients, renewals, settling, config)
        telemetry_handler = TelemetryHandler(cluster, clients)
        offsets = OffsetsHandler(cluster)
        transactions = TransactionsHandler(cluster, clients)
        self._members = MembersHandler(cluster, clients, config.clock)
        unaries: dict[str, Handler] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "SendMessage": sending.send,
            "RecallMessage": sending.recall,
            "AckMessage": settling.ack,
            "ChangeInvisibleDuration": settling.change,
            "ForwardMessageToDeadLetterQueue": settling.forward,
            "EndTransaction": transactions.end,
            "UpdateOffset": offsets.update,
            "GetOffset": offsets.get,
            "QueryOffset": offsets.query,
            "Heartbeat": telemetry_handler.heartbeat,
            "NotifyClientTermination": telemetry_handler.terminate,
        }
        self.methods: Mapping[str, RpcMethod] = {
            **{name: unary(name, handler) for name, handler in unaries.items()},
            "ReceiveMessage": stream("ReceiveMessage", receiving.receive),
            "PullMessage": stream("PullMessage", offsets.pull),
            "Telemetry": telemetry(telemetry_handler.telemetry),
        }
        """Methods of the service by their names."""

    def start(self) -> None:
        """Open for requests; the cluster need not be reachable yet."""
        self._cluster.start()
        background = self._cluster.session.background
        background.supervise(self._watch, "clients and receipts", self._clock)

    def admin(self) -> AdminServer:
        """A server for operators of this cluster."""
        session = self._cluster.session
        client = AdminClient(session.addresses, session.config)
        return AdminServer(
            client, self._cluster, self._clients, self._members, self._sending, self._config
        )

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(SCAN_PERIOD_MS)
            self._clients.expire()
            await self._renewals.step()

    def drain(self) -> None:
        """Tell clients to connect to another proxy, and end their streams."""
        self._clients.end_streams()

    async def close(self) -> None:
        """Let unacknowledged messages come again soon, and close the connections."""
        await self._receiving.close()
        await self._renewals.close()
        await self._cluster.close()
