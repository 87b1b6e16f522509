"""Sessions: visitors who have logged in, each with a connection to the cluster of their own."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig

SESSIONS_MAX: Final = 200
"""Logins at a time; the oldest ends when one more comes."""

EACH_MAX: Final = 20
"""Logins of one user at a time: nobody ends those of all others by many of their own."""

NOTICES_MAX: Final = 500
"""Sentences that wait for the next page of their visitor."""

TOKEN_BYTES: Final = 32


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """A browser, by its cookie, and the user as whom it asks the cluster."""

    token: str
    """The value of the cookie; a secret."""
    user: str | None
    """None: nobody has logged in."""
    client: ClientConfig
    """Settings of clients that ask as this user."""
    admin: AdminClient


class _Login(msgspec.Struct, kw_only=True):
    visitor: Visitor
    ends_ms: int
    connection: AsyncExitStack


class Sessions:
    """Logins by the token of their cookie, in memory: a restart ends all."""

    def __init__(
        self, open_admin: Callable[[ClientConfig], AdminClient], *, lifetime_ms: int
    ) -> None:
        self._open_admin = open_admin
        self._lifetime_ms = lifetime_ms
        self._logins: dict[str, _Login] = {}
        self._notices: dict[str, str] = {}
        self._key = secrets.token_bytes(TOKEN_BYTES)

    async def open(self, user: str, client: ClientConfig, now_ms: int) -> Visitor:
        """Begin a session of a user, with a new token; `now_ms` is a monotonic time."""
        await self.close_expired(now_ms)
        own = [token for token, login in self._logins.items() if login.visitor.user == user]
        for token in own[: max(0, len(own) + 1 - EACH_MAX)]:
            await self.close(token)
        while len(self._logins) >= SESSIONS_MAX:
            await self.close(next(iter(self._logins)))
        connection = AsyncExitStack()
        admin = await connection.enter_async_context(self._open_admin(client))
        visitor = Visitor(token=new_token(), user=user, client=client, admin=admin)
        self._logins[visitor.token] = _Login(
            visitor=visitor, ends_ms=now_ms + self._lifetime_ms, connection=connection
        )
        return visitor

    def find(self, token: str, now_ms: int) -> Visitor | None:
        """The visitor of a token; None without a login, or once it has ended."""
        login = self._logins.get(token)
        return login.visitor if login is not None and now_ms < login.ends_ms else None

    async def close(self, token: str) -> None:
        """End a session and close its connections."""
        self._notices.pop(token, None)
        if (login := self._logins.pop(token, None)) is not None:
            await login.connection.aclose()

    async def close_expired(self, now_ms: int) -> None:
        """End the sessions whose time is over."""
        for token in [t for t, login in self._logins.items() if login.ends_ms <= now_ms]:
            await self.close(token)

    async def close_all(self) -> None:
        """End every session."""
        for token in [*self._logins]:
            await self.close(token)

    def csrf_token(self, token: str) -> str:
        """The token that forms of a visitor carry; another site cannot know it."""
        return hmac.new(self._key, token.encode(), hashlib.sha256).hexdigest()

    def is_csrf_token(self, token: str, shown: str) -> bool:
        """Whether a form carries the token of its visitor."""
        return hmac.compare_digest(self.csrf_token(token).encode(), shown.encode())

    def notify(self, token: str, text: str) -> None:
        """Keep a sentence for the next page that the visitor sees."""
        self._notices.pop(token, None)
        while len(self._notices) >= NOTICES_MAX:
            del self._notices[next(iter(self._notices))]
        self._notices[token] = text

    def take_notice(self, token: str) -> str | None:
        """The sentence for the visitor's next page, once."""
        return self._notices.pop(token, None)


def new_token() -> str:
    """A token that nobody can guess, for a cookie."""
    return secrets.token_urlsafe(TOKEN_BYTES)
