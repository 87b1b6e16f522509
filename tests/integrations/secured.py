"""A cluster that speaks TLS alone, wants a certificate, and checks users."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.client import Tls
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.tls import ServerTls
from roquet.testing.cluster import SMALL_BROKER, BlockingCluster
from roquet.wire.signing import Credentials

FILES = Path(__file__).parents[1] / "certificates"
CA, CERT, KEY = FILES / "ca.pem", FILES / "server.pem", FILES / "server.key"
USER = Credentials(access_key="shop", secret_key="hush-hush")

TLS = Tls(ca=CA, cert=FILES / "client.pem", key=FILES / "client.key")
SECURED: dict[str, Any] = {"access_key": "shop", "secret_key": "hush-hush", "tls": TLS}
WRONG: dict[str, Any] = {**SECURED, "secret_key": "guessed"}


@contextmanager
def secured_cluster() -> Iterator[str]:
    """Address of the cluster's name server."""
    names = NameServer(
        NameServerConfig(host="127.0.0.1", port=0, tls=ServerTls(cert=CERT, key=KEY, client_ca=CA))
    )
    with BlockingCluster(brokers=0, namesrvs=0) as running:  # lends its thread
        running.run(names.__aenter__())
        settings = {
            **SMALL_BROKER,
            "name_servers": (names.address,),
            "tls_cert": CERT,
            "tls_key": KEY,
            "tls_ca": CA,
            "tls_client_ca": CA,
            "authentication_enabled": True,
            "authorization_enabled": True,
            "initial_user": USER,
            "inner_credentials": USER,
        }
        broker = BrokerServer(BrokerConfig(**settings))
        running.run(broker.__aenter__())
        yield names.address
        running.run(broker.__aexit__(None, None, None))
        running.run(names.__aexit__(None, None, None))
