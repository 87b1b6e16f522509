"""Password check: whether a cluster takes requests that a user has signed."""

import secrets
from typing import Final

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.model.errors import CallError, CallRefused, RoquetError
from roquet.wire.calls.access import GetUser
from roquet.wire.codes import ResponseCode

REFUSED_BY_POLICY: Final = "has no permission"
"""Part of a refusal by policies, in the words of Apache's brokers: the signature was right."""


NOT_CHECKED: Final = "the cluster checks no signatures: start the dashboard without login"


class LoginFailed(RoquetError):
    """A user and password that the cluster does not know."""


class _SignedAsker:
    """Asks brokers with a user's signature."""

    def __init__(self, name_servers: str, client: ClientConfig) -> None:
        self._name_servers = name_servers
        self._client = client

    async def refusal(self, address: str, user: str) -> str | None:
        """The remark with which a broker refuses to show a user to itself; None: it shows it.

        Raises CallError when the broker does not answer.
        """
        async with AdminClient(self._name_servers, self._client) as admin:
            try:
                await admin.ask(address, GetUser(username=user))
            except CallRefused as error:
                if error.code != ResponseCode.NO_PERMISSION:
                    raise
                return error.remark or ""
        return None


async def check_password(
    admin: AdminClient, name_servers: str, user: str, wrong: ClientConfig, right: ClientConfig
) -> None:
    """Raise LoginFailed unless a broker takes the user's signature.

    `wrong` are settings with a password that nobody has: a broker that takes them checks no
    signatures, and lets nobody log in. `right` are those with the password to check. `admin` says
    which brokers there are; RoquetError when none answers.
    """
    failure: RoquetError = RoquetError("no broker answers")
    for address in (await admin.brokers()).values():
        try:
            refused = await _SignedAsker(name_servers, wrong).refusal(address, user)
            if refused is None:
                raise LoginFailed(NOT_CHECKED)
            remark = await _SignedAsker(name_servers, right).refusal(address, user)
        except CallRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise LoginFailed(NOT_CHECKED) from None
            failure = error
            continue
        except CallError as error:
            failure = error
            continue
        if remark is None or (remark != refused and REFUSED_BY_POLICY in remark):
            return
        raise LoginFailed("the cluster does not know this user with this password")
    raise failure


def wrong_password() -> str:
    """A password that no user has."""
    return secrets.token_urlsafe(32)
