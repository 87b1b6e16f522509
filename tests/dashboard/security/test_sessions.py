import pytest

from roquet.admin.client import AdminClient
from roquet.client.config import ClientConfig
from roquet.dashboard.security import sessions
from roquet.dashboard.security.sessions import EACH_MAX, NOTICES_MAX, SESSIONS_MAX, Sessions


def some_sessions() -> Sessions:
    return Sessions(lambda client: AdminClient("127.0.0.1:9", client), lifetime_ms=1_000)


async def test_a_session_ends_after_its_time() -> None:
    known = some_sessions()
    visitor = await known.open("alice", ClientConfig(), 0)
    assert known.find(visitor.token, 999) is visitor
    assert known.find(visitor.token, 1_000) is None
    await known.close_expired(1_000)
    assert known.find(visitor.token, 0) is None


async def test_each_login_has_a_token_of_its_own() -> None:
    known = some_sessions()
    first, second = [await known.open("alice", ClientConfig(), 0) for _ in range(2)]
    assert first.token != second.token
    await known.close(first.token)
    assert known.find(first.token, 0) is None
    assert known.find(second.token, 0) is second
    await known.close_all()
    assert known.find(second.token, 0) is None


async def test_the_oldest_login_ends_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    known = some_sessions()
    visitors = [await known.open("alice", ClientConfig(), 0) for _ in range(3)]
    assert [known.find(one.token, 0) is not None for one in visitors] == [False, True, True]


async def test_many_logins_of_one_user_end_none_of_others() -> None:
    known = some_sessions()
    alice = await known.open("alice", ClientConfig(), 0)
    tokens = [(await known.open("bob", ClientConfig(), 0)).token for _ in range(EACH_MAX)]
    assert all(known.find(token, 0) for token in tokens)
    for _ in range(SESSIONS_MAX):
        await known.open("bob", ClientConfig(), 0)
    assert known.find(alice.token, 0) is alice
    assert not any(known.find(token, 0) for token in tokens)
    await known.close_all()


def test_a_csrf_token_belongs_to_one_cookie_and_one_process() -> None:
    known = some_sessions()
    assert known.is_csrf_token("cookie", known.csrf_token("cookie"))
    assert not known.is_csrf_token("another", known.csrf_token("cookie"))
    assert not known.is_csrf_token("cookie", "\u00e9")
    assert known.csrf_token("cookie") != some_sessions().csrf_token("cookie")


def test_a_notice_is_shown_once_and_they_do_not_pile_up() -> None:
    known = some_sessions()
    for number in range(NOTICES_MAX + 1):
        known.notify(f"cookie {number}", "done")
    assert known.take_notice("cookie 0") is None
    assert known.take_notice("cookie 1") == "done"
    assert known.take_notice("cookie 1") is None
