"""Accounts of Apache RocketMQ 4."""

from roquet.model.plain_acl import PlainAccount


def test_an_account_is_printed_without_its_secret() -> None:
    account = PlainAccount(access_key="shop", secret_key="hidden-secret")
    assert repr(account) == "PlainAccount(access_key='shop')"
