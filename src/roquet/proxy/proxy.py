"""Proxy: the parts of a proxy and what it serves, without the server that takes the requests."""

from collections.abc import Mapping, Sequence
from functools import partial

from roquet.access.access_users import RELOAD_MS, AccessUsers
from roquet.admin.client import AdminClient
from roquet.log_records import logger
from roquet.metrics.rocketmq_metrics import PROXY_UP
from roquet.metrics.roquet_metrics import PROXY_CLIENTS, PROXY_RECEIPTS, PROXY_STREAMS, RPC_TIME
from roquet.metrics.text_format import MetricsPage
from roquet.net.clock import every
from roquet.net.pool import LocalServer
from roquet.proxy.access import ProxyAccess
from roquet.proxy.admin.server import AdminServer
from roquet.proxy.admission import ClientAdmission
from roquet.proxy.broker_users import BrokerUsers
from roquet.proxy.clients import ClientTable
from roquet.proxy.cluster import NO_SERVERS, ProxiedCluster
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
from roquet.proxy.service import Handler, RpcMethod, RpcMethods
from roquet.rules.proxy.renewal import SCAN_PERIOD_MS

log = logger(__name__)


class Proxy:
    """Serves RocketMQ 5's requests in front of one cluster."""

    def __init__(self, namesrv: str | Sequence[str] | None, config: ProxyConfig) -> None:
        self._clock = config.clock
        self.cluster = cluster = ProxiedCluster(namesrv, config)
        """The brokers behind it."""
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
        self.unready = "the name servers were not asked yet"
        """Why no requests should come here now; empty: they should."""
        self._is_draining = False
        self._file_users = AccessUsers(config.access_file) if config.access_file else None
        self._broker_users = BrokerUsers(cluster) if config.broker_users else None
        self._access = access = self._find_access()
        self.admission = ClientAdmission(access)
        self.admission.owner_of = clients.owner_of
        made = RpcMethods(self.admission, config.clock)
        self._times = made.times
        self.methods: Mapping[str, RpcMethod] = {
            **{name: made.unary(name, handler) for name, handler in unaries.items()},
            "ReceiveMessage": made.stream("ReceiveMessage", receiving.receive),
            "PullMessage": made.stream("PullMessage", offsets.pull),
            "Telemetry": made.telemetry(telemetry_handler.telemetry),
        }
        """Methods of the service by their names."""

    def _find_access(self) -> ProxyAccess | None:
        checks_policies = self._config.checks_policies
        if (file := self._file_users) is not None:
            return ProxyAccess(lambda: file.tables, checks_policies=checks_policies)
        if self._broker_users is not None:
            return ProxyAccess(self._broker_users.tables, checks_policies=checks_policies)
        return None

    def start(self, local: Mapping[str, LocalServer] = NO_SERVERS) -> None:
        """Open for requests; the cluster need not be reachable yet.

        Brokers of this process are in `local`, by their addresses.
        """
        self.cluster.start(local)
        background = self.cluster.session.background
        if (users := self._broker_users) is not None:
            background.supervise(users.serve, "users of the brokers", self._clock)
        if (file := self._file_users) is not None:
            reload = partial(every, RELOAD_MS, file.reload, self._clock)
            background.supervise(reload, "users of the file", self._clock)
        background.supervise(self._watch_cluster, "readiness", self._clock)
        background.supervise(self._watch_clients, "clients and receipts", self._clock)

    def admin(self) -> AdminServer:
        """A server for operators of this cluster."""
        session = self.cluster.session
        client = AdminClient(session.addresses, session.config)
        server = AdminServer(
            client, self.cluster, self._clients, self._members, self._sending, self._config
        )
        if self._access is not None:
            server.check = self._access.check_operator
        return server

    async def _watch_cluster(self) -> None:
        while not self._is_draining:
            found = await self.cluster.why_unready()
            if not self._is_draining:
                if found not in ("", self.unready):
                    log.warning("nothing can be sent or received now: %s", found)
                self.unready = found
            await self._clock.sleep(SCAN_PERIOD_MS)

    async def _watch_clients(self) -> None:
        while True:
            await self._clock.sleep(SCAN_PERIOD_MS)
            self._clients.expire()
            await self._renewals.step()

    def add_to(self, page: MetricsPage) -> None:
        """Add what the proxy does to a page of metrics."""
        page.add(PROXY_UP, 1, "cluster")
        page.add(PROXY_CLIENTS, len(self._clients))
        page.add(PROXY_STREAMS, self._clients.streams)
        page.add(PROXY_RECEIPTS, len(self._renewals))
        for (method, code), times in self._times.items():
            page.add_histogram(RPC_TIME, times, method, code)

    def drain(self) -> None:
        """Tell clients to connect to another proxy, and end their streams."""
        self._is_draining, self.unready = True, "the proxy stops"
        self._clients.end_streams()

    async def close(self) -> None:
        """Let unacknowledged messages come again soon, and close the connections."""
        await self._receiving.close()
        await self._renewals.close()
        await self.cluster.close()
