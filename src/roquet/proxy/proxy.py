"""Proxy: the parts of a proxy and what it serves, without the server that takes the requests."""

from collections.abc import Mapping, Sequence
from functools import partial

from roquet.access.access_users import RELOAD_MS, AccessUsers
from roquet.net.clock import every
from roquet.proxy.access import ProxyAccess
from roquet.proxy.admission import Admission
from roquet.proxy.broker_users import BrokerUsers
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import ProxiedCluster
from roquet.proxy.config import ProxyConfig
from roquet.proxy.handlers.offsets import OffsetsHandler
from roquet.proxy.handlers.receiving import ReceivingHandler
from roquet.proxy.handlers.routes import RoutesHandler
from roquet.proxy.handlers.sending import SendingHandler
from roquet.proxy.handlers.settling import SettlingHandler
from roquet.proxy.handlers.telemetry import TelemetryHandler
from roquet.proxy.handlers.transactions import TransactionsHandler
from roquet.proxy.receipts import Deliveries, ReceiptRenewals
from roquet.proxy.service import Handler, RpcMethod, RpcMethods
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
        self._receiving = receiving = ReceivingHandler(cluster, clients, renewals, settling, config)
        telemetry_handler = TelemetryHandler(cluster, clients)
        offsets = OffsetsHandler(cluster)
        transactions = TransactionsHandler(cluster, clients)
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
        self._file_users = AccessUsers(config.access_file) if config.access_file else None
        self._broker_users = BrokerUsers(cluster.session) if config.broker_users else None
        self.admission = Admission(self._access())
        made = RpcMethods(self.admission)
        self.methods: Mapping[str, RpcMethod] = {
            **{name: made.unary(name, handler) for name, handler in unaries.items()},
            "ReceiveMessage": made.stream("ReceiveMessage", receiving.receive),
            "PullMessage": made.stream("PullMessage", offsets.pull),
            "Telemetry": made.telemetry(telemetry_handler.telemetry),
        }
        """Methods of the service by their names."""

    def _access(self) -> ProxyAccess | None:
        if (users := self._file_users) is not None:
            return ProxyAccess(lambda: users.tables)
        return ProxyAccess(self._broker_users.tables) if self._broker_users is not None else None

    def start(self) -> None:
        """Open for requests; the cluster need not be reachable yet."""
        self._cluster.start()
        background = self._cluster.session.background
        if (users := self._broker_users) is not None:
            background.supervise(users.serve, "users of the brokers", self._clock)
        if (file := self._file_users) is not None:
            reload = partial(every, RELOAD_MS, file.reload, self._clock)
            background.supervise(reload, "users of the file", self._clock)
        background.supervise(self._watch, "clients and receipts", self._clock)

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
