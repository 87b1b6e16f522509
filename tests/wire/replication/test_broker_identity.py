"""Identity files of brokers with a controller."""

import pytest
from tests.wire.replication.conftest import VECTORS

from roquet.model.errors import FieldError
from roquet.wire.replication.broker_identity import BrokerIdentity, check_code, decode_identity

GENUINE = (VECTORS / "brokerIdentity").read_text("ascii")


def test_a_genuine_file_is_read_and_written_to_the_byte() -> None:
    identity = decode_identity(GENUINE)
    assert identity == BrokerIdentity(cluster="C", broker_name="bc", broker_id=1)
    assert identity.text() == GENUINE


def test_an_application_has_a_check_code() -> None:
    code = check_code("127.0.0.1:21941", 1_795_364_362_996)
    assert code == "127.0.0.1:21941;1795364362996", "as the genuine broker has it in request 1013"
    applying = BrokerIdentity(cluster="C", broker_name="bc", broker_id=1, check_code=code)
    assert applying.text() == f"C#bc#1#{code}"
    assert decode_identity(applying.text()) == applying


@pytest.mark.parametrize(
    "text", ["", "C#bc", "C#bc#", "#bc#1", "C##1", "C#bc#x", "C#bc#-1", "C#bc#1#", "C#bc#1#a;1#b"]
)
def test_a_damaged_file_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="broker identity"):
        decode_identity(text)


@pytest.mark.parametrize(("cluster", "name"), [("a#b", "c"), ("a", "b#c"), ("", "c"), ("a", "")])
def test_names_that_would_be_read_as_others_are_refused(cluster: str, name: str) -> None:
    with pytest.raises(FieldError, match="may not be empty"):
        BrokerIdentity(cluster=cluster, broker_name=name, broker_id=1).text()
