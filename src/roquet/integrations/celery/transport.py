"""Transport: a connection of kombu to a cluster, `rocketmq://KEY:SECRET@HOST:PORT/NAMESPACE`.

Several name servers are several URLs with `;` between them.
"""

import os
import socket
import weakref
from collections.abc import Mapping
from contextlib import suppress
from ssl import CERT_NONE
from typing import Any, Final

from kombu.transport import virtual
from kombu.utils.compat import detect_environment
from kombu.utils.url import parse_url

from roquet.client.connection.loop_thread import LoopThread
from roquet.integrations.celery.channel import RocketMQChannel
from roquet.integrations.celery.clients import ClusterClients, shared_clients
from roquet.model.errors import CallError, ConfigError, ConnectFailed, NotFound, RoquetError
from roquet.net.clock import SYSTEM_CLOCK
from roquet.net.tls import Tls

DEFAULT_PORT: Final = 9876

TLS_OPTIONS: Final = {
    "ca_certs": "ca",
    "certfile": "cert",
    "keyfile": "key",
    "check_hostname": "check_host",
    "server_hostname": "server_name",
}
"""Fields of `Tls` by the names of Python's `ssl`."""


class Transport(virtual.Transport):
    """A connection to a cluster; its clients are made when they are used first."""

    Channel = RocketMQChannel
    default_port = DEFAULT_PORT
    driver_type = driver_name = "rocketmq"
    connection_errors = (*virtual.Transport.connection_errors, CallError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, NotFound)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    is_secure = False

    def __init__(self, client: Any, **named: Any) -> None:
        super().__init__(client, **named)
        self.levels: dict[str, int] = {}
        """Queues with priorities that were declared, and their numbers of priorities."""
        self._clients: ClusterClients | None = None
        self._failure: Exception | None = None
        """The error that has ended the reading of a queue, as of a user without rights to it."""
        self._bell, self._ringer = socket.socketpair()
        self._ringer.setblocking(False)
        for end in (self._bell, self._ringer):
            weakref.finalize(self, end.close)

    @property
    def clients(self) -> ClusterClients:
        """The clients of this process: a forked child gets its own."""
        if self._clients is None or self._clients.pid != os.getpid():
            opening = shared_clients(self.addresses(), self.settings())
            self._clients = LoopThread.shared().wait(opening)
        return self._clients

    def addresses(self) -> list[str]:
        """Addresses of the name servers, by the URLs."""
        urls = [parse_url(url) for url in self.client.alt if "://" in url]
        hosts = [(url["hostname"], url["port"]) for url in urls]
        hosts = hosts or [(self.client.hostname, self.client.port)]
        return [f"{host or 'localhost'}:{port or DEFAULT_PORT}" for host, port in hosts]

    def settings(self) -> dict[str, Any]:
        """Settings of the clients, by the first URL and the TLS options."""
        namespace = (self.client.virtual_host or "").strip("/")
        return {
            "access_key": self.client.userid or None,
            "secret_key": self.client.password or None,
            "namespace": namespace or None,
            "tls": _tls(self.client.ssl or self.is_secure),
        }

    def establish_connection(self) -> Any:
        """Connect, and check that a name server answers; raises CallError otherwise."""
        if detect_environment() != "default":
            raise ConfigError(
                "gevent and eventlet are not supported: use -P prefork, threads, solo"
            )
        try:
            self.clients.run(self.clients.admin.cluster())
        except CallError:
            raise
        except RoquetError as error:  # no broker yet
            raise ConnectFailed(str(error)) from error
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels and clients."""
        super().close_connection(connection)
        if self._clients is not None:
            self._clients.close()
        self._clients = self._failure = None

    def fail(self, error: Exception) -> None:
        """Let the consumers' thread raise an error."""
        self._failure = error
        self.ring()

    def ring(self) -> None:
        """Wake the consumers' thread: something has arrived, or there is room again."""
        with suppress(BlockingIOError):  # it has not heard the last 200,000 yet
            self._ringer.send(b"!")

    def drain_events(self, _connection: Any, timeout: float | None = None) -> None:
        """Hand out messages, and wait for the first; TimeoutError after the timeout in seconds."""
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + int((timeout or 0) * 1_000)
        while not self._deliver_all():
            left_ms = max(deadline_ms - SYSTEM_CLOCK.monotonic_ms(), 1)
            self._bell.settimeout(None if timeout is None else left_ms / 1_000)
            self._bell.recv(4096)

    def _deliver_all(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return bool(sum(channel.deliver() for channel in list(self.channels)))

    def register_with_event_loop(self, _connection: Any, loop: Any) -> None:
        """Hand out messages whenever the loop hears of them."""
        loop.add_reader(self._bell, self._hear)

    def unregister_from_event_loop(self, _connection: Any, loop: Any) -> None:
        """Hand out no more."""
        loop.remove_reader(self._bell)

    def _hear(self) -> None:
        self._bell.settimeout(0)
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        self._deliver_all()


class TlsTransport(Transport):
    """A connection by TLS; `rocketmqs://…?ssl_ca_certs=FILE` and Celery's `broker_use_ssl`."""

    is_secure = True


def _tls(options: Mapping[str, Any] | bool) -> Tls | None:
    """TLS by the options of Python's `ssl`, with or without `ssl_` in front; None for none."""
    if not options:
        return None
    given = {} if options is True else {k.removeprefix("ssl_"): v for k, v in options.items()}
    verify = given.pop("cert_reqs", None) != CERT_NONE
    if unknown := given.keys() - TLS_OPTIONS.keys():
        raise ConfigError(
            f"TLS options {', '.join(sorted(unknown))}: cert_reqs and"
            f" {', '.join(sorted(TLS_OPTIONS))} are known"
        )
    return Tls(verify=verify, **{TLS_OPTIONS[name]: value for name, value in given.items()})
