"""Spark against servers that speak TLS alone, want a certificate and check users."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.namesrv.app import NameServer
from roquet.namesrv.config import NameServerConfig
from roquet.net.tls import ServerTls
from roquet.testing.cluster import BlockingCluster
from roquet.wire.signing import Credentials

pytestmark = pytest.mark.spark_suite

HERE = Path(__file__).parents[1] / "certificates"
CA = HERE / "ca.pem"
USER = Credentials(access_key="lake", secret_key="hush-hush")
OPTIONS = {
    "topic": "orders",
    "tlsCa": str(CA),
    "tlsCert": str(HERE / "client.pem"),
    "tlsKey": str(HERE / "client.key"),
    "timeout": "20s",
}
SIGNED = {"accessKey": USER.access_key, "secretKey": USER.secret_key}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    """Address of a name server, beside it a broker."""
    pair = {"cert": HERE / "server.pem", "key": HERE / "server.key"}
    tls = ServerTls(cert=pair["cert"], key=pair["key"], client_ca=CA)
    names = NameServer(NameServerConfig(host="127.0.0.1", port=0, tls=tls))
    with BlockingCluster() as running:  # lends its thread
        running.run(names.__aenter__())
        broker = BrokerServer(
            BrokerConfig(
                host="127.0.0.1",
                port=0,
                advertise="127.0.0.1",
                vip_port=False,
                name_servers=(names.address,),
                tls_cert=pair["cert"],
                tls_key=pair["key"],
                tls_ca=CA,
                tls_client_ca=CA,
                authentication_enabled=True,
                authorization_enabled=True,
                initial_user=USER,
                inner_credentials=USER,
            )
        )
        running.run(broker.__aenter__())
        yield names.address
        running.run(broker.__aexit__(None, None, None))
        running.run(names.__aexit__(None, None, None))


def test_reads_and_writes_sign_and_speak_tls(
    namesrv: str, spark: SparkSession, tmp_path: Path
) -> None:
    secured = {"namesrv": namesrv, **OPTIONS, **SIGNED}
    rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as body")
    writer = rows.write.format("roquet").mode("append").option("createTopic", "true")
    writer.options(**secured).save()
    assert spark.read.format("roquet").options(**secured).load().count() == 100
    stream = spark.readStream.format("roquet").options(**secured).load()
    query = stream.writeStream.format("parquet").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.start(str(tmp_path / "rows")).awaitTermination(60)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 100


def test_without_a_signature_or_a_certificate_nothing_is_read(
    namesrv: str, spark: SparkSession
) -> None:
    unsigned = {"namesrv": namesrv, **OPTIONS}
    with pytest.raises(PySparkException, match="username cannot be null"):
        spark.read.format("roquet").options(**unsigned).load().count()
    plain = {"namesrv": namesrv, "topic": "orders", "timeout": "1s", **SIGNED}
    with pytest.raises(PySparkException, match=r"no name server of .* answers"):
        spark.read.format("roquet").options(**plain).load().count()
