"""RocketMQHook: clients with the settings of an Airflow connection of type `rocketmq`.

    host, port        a name server; or several in `host`, as mq-1:9876;mq-2:9876
    login, password   access key and secret key
    extra             further settings of clients as JSON: {"namespace": "prod", "tls": true}

As a URI: rocketmq://key:secret@mq-1:9876/?namespace=prod
"""

import asyncio
from typing import Any, Final, TypeVar, Unpack

from roquet.admin import groups
from roquet.admin.client import AdminClient
from roquet.client import (
    ClientConfig,
    ConfigError,
    MessageFields,
    ProducerConfig,
    RoquetError,
    SendReceipt,
)
from roquet.client.blocking import Producer
from roquet.integrations import installed_by
from roquet.model.namespaces import wrap
from roquet.model.settings import parse_bool

with installed_by("pip install 'roquet[airflow]'"):
    from airflow.sdk import BaseHook, Connection

NAME_SERVER_PORT: Final = 9876

C = TypeVar("C", bound=ClientConfig)


class ClusterSettings:
    """Addresses and client settings of a connection, and the lag of groups."""

    def __init__(self, connection: Connection) -> None:
        if not connection.host:
            raise ConfigError(
                f"connection {connection.conn_id!r}: host: the name server is missing"
            )
        host = connection.host
        is_complete = ":" in host.rpartition("]")[2] or ";" in host
        self.namesrv = host if is_complete else f"{host}:{connection.port or NAME_SERVER_PORT}"
        self._fields: dict[str, Any] = dict(connection.extra_dejson)
        if isinstance(tls := self._fields.get("tls"), str) and tls.lower() in {"true", "false"}:
            self._fields["tls"] = parse_bool(tls, "tls")  # a URI has texts alone
        if connection.login:
            self._fields |= {"access_key": connection.login, "secret_key": connection.password}

    def config(self, kind: type[C]) -> C:
        """Settings of a kind of client; ConfigError for an extra field that is no setting."""
        return kind(**self._fields)

    async def lag(self, group: str, topic: str | None = None) -> int | None:
        """Messages that a group has not handled, of all its topics or of one.

        None where a broker does not tell. Raises NotFound for a group that no broker knows.
        """
        config = self.config(ClientConfig)
        async with AdminClient(self.namesrv, config) as admin:
            info = await groups.show(admin, wrap(config.namespace, group))
        if topic is None:
            return info.lag
        lags = [one.lag for one in info.queues if one.topic == wrap(config.namespace, topic)]
        return sum(lags) if lags else None


class RocketMQHook(BaseHook):
    """Sends messages and asks for lag, with the settings of an Airflow connection."""

    conn_name_attr = "rocketmq_conn_id"
    default_conn_name = "rocketmq_default"
    conn_type = "rocketmq"
    hook_name = "RocketMQ"

    def __init__(self, rocketmq_conn_id: str = default_conn_name, **named: Any) -> None:
        super().__init__(**named)
        self.rocketmq_conn_id = rocketmq_conn_id

    def settings(self) -> ClusterSettings:
        """Read the connection."""
        return ClusterSettings(self.get_connection(self.rocketmq_conn_id))

    async def asettings(self) -> ClusterSettings:
        """Read the connection in an event loop, as triggers do."""
        return ClusterSettings(await self.aget_connection(self.rocketmq_conn_id))

    def get_conn(self) -> Producer:
        """Make a producer, which `with` opens and closes."""
        settings = self.settings()
        return Producer(settings.namesrv, config=settings.config(ProducerConfig))

    def send(self, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> SendReceipt:
        """Send one message, with fields such as `tag` and `keys`."""
        with self.get_conn() as producer:
            return producer.send(topic, body, **fields)

    def lag(self, group: str, topic: str | None = None) -> int | None:
        """Messages that a group has not handled; None where a broker does not tell."""
        return asyncio.run(self.settings().lag(group, topic))

    def test_connection(self) -> tuple[bool, str]:
        """Ask the name servers for the brokers, for the button in Airflow's form."""

        async def ask() -> str:
            settings = self.settings()
            async with AdminClient(settings.namesrv, settings.config(ClientConfig)) as admin:
                return f"brokers: {', '.join(await admin.brokers())}"

        try:
            return True, asyncio.run(ask())
        except (RoquetError, OSError) as error:
            return False, str(error)
