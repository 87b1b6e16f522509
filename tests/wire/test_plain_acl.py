from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.model.errors import FieldError
from roquet.model.plain_acl import PlainAccount
from roquet.wire.plain_acl import decode_plain_acl

GENUINE = Path(__file__).parents[1] / "vectors" / "auth" / "plain_acl.yml"


def test_the_file_of_apaches_distribution_is_read() -> None:
    found = decode_plain_acl(GENUINE.read_bytes())
    assert found.global_white_remote_addresses == ["10.10.103.*", "192.168.0.*"]
    assert found.accounts[1] == PlainAccount(
        access_key="rocketmq2",
        secret_key="12345678",
        white_remote_address="192.168.1.*",
        admin="true",
    )


def test_a_secret_of_digits_stays_as_it_is_written() -> None:
    data = b"accounts: [{accessKey: shop, secretKey: 0012345}]"
    assert decode_plain_acl(data).accounts == [
        PlainAccount(access_key="shop", secret_key="0012345")
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"accounts: [\n  {secretKey: hidden", "this is no YAML, line 2"),
        (b"accounts: \xff\xfe hidden", "this is no YAML"),
        (b"[" * 500 + b"hidden", "this is no YAML"),
        (b"hidden", 'no YAML map with the list "accounts"'),
        (b'{"users": [hidden]}', 'no YAML map with the list "accounts"'),
        (b"accounts: [{secretKey: [hidden]}]", r"Expected `str`, got `array` .*secretKey"),
        (b"accounts: !!python/object/apply:os.system [hidden]", "Expected `object`, got `str`"),
    ],
)
def test_what_is_no_such_file_is_refused_without_repeating_it(data: bytes, problem: str) -> None:
    with pytest.raises(FieldError, match=problem) as caught:
        decode_plain_acl(data)
    assert "hidden" not in str(caught.value)


@settings(max_examples=25)
@given(st.text(max_size=60))
def test_no_text_is_more_than_refused(text: str) -> None:
    with suppress(FieldError):
        decode_plain_acl(f"accounts: {text}".encode(errors="replace"))
