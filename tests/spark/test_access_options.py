"""Keys and certificates of Spark's reads and writes, from options and from the environment."""

import pickle
import ssl
from pathlib import Path

import pytest

from roquet.model.errors import ConfigError
from roquet.net.channel import PLAIN
from roquet.spark.access_options import AccessOptions, take_access
from roquet.spark.options import parse

CA = str(Path(__file__).parents[1] / "certificates" / "ca.pem")


def test_options_of_access_are_taken_and_others_left() -> None:
    others, access = take_access(
        {"topic": "orders", "ACCESSKEY": "a", "secretKey": " s ", "tlsVerify": "false"}
    )
    assert others == {"topic": "orders"}
    assert access == AccessOptions(access_key="a", secret_key="s", tls_verify=False)


def test_without_options_connections_are_plain_and_unsigned() -> None:
    assert AccessOptions().security({}) is PLAIN
    assert AccessOptions(tls=False).security({"ROCKETMQ_TLS": "true"}).context is None


def test_what_options_leave_out_comes_from_the_environment() -> None:
    environ = {
        "ROCKETMQ_ACCESS_KEY": "a", "ROCKETMQ_SECRET_KEY": "s", "ROCKETMQ_TLS_CA": CA,
        "ROCKETMQ_TLS_SERVER_NAME": "elsewhere.example",
    }  # fmt: skip
    security = AccessOptions().security(environ)
    assert security.signed == "signed with access key 'a'"
    assert security.context is not None
    assert security.server_name == "elsewhere.example"
    own = AccessOptions(access_key="b", secret_key="t", tls_ca=CA, tls_check_host=False)
    security = own.security(environ)
    assert security.signed == "signed with access key 'b'"
    assert security.context is not None
    assert not security.context.check_hostname
    any_server = AccessOptions(tls=True, tls_verify=False).security({}).context
    assert any_server is not None
    assert any_server.verify_mode is ssl.CERT_NONE


def test_a_key_without_its_secret_is_an_error() -> None:
    with pytest.raises(ConfigError, match="access key a without secret_key"):
        AccessOptions(access_key="a").security({})


def test_secrets_travel_to_workers_and_are_not_printed() -> None:
    settings = parse({"topic": "o", "namesrv": "h:1", "accessKey": "a", "secretKey": "hush"}, {})
    assert "hush" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(("option", "text"), [("tlsCa", " "), ("tls", "perhaps")])
def test_an_option_that_cannot_be_read_is_named(option: str, text: str) -> None:
    with pytest.raises(ConfigError, match=option):
        take_access({option: text})
