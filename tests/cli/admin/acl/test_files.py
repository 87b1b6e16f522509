"""Files and arguments of roquet acl."""

from pathlib import Path

import pytest

from roquet.access.translation import AccessDocument
from roquet.cli.admin.acl import files
from roquet.model.access import Action
from roquet.model.errors import RoquetError, UsageError
from roquet.wire.calls.access import UserInfo


def test_an_export_is_private_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    files.write(path, AccessDocument(users=[UserInfo(username="bob", password="p")]))
    assert path.stat().st_mode & 0o777 == 0o600
    assert files.read(path).users["bob"].password == "p"
    with pytest.raises(RoquetError, match="to super users alone"):
        files.write(tmp_path / "b.json", AccessDocument(users=[UserInfo(username="bob")]))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "access.json"
    path.write_text("{}")
    with pytest.raises(UsageError, match="no JSON object with the lists"):
        files.read(path)


def test_why_asks_about_one_resource() -> None:
    assert str(files.request(Action.PUB, "topic:a").resource) == "Topic:a"
    for text in ("*", "Topic:*", "Topic:a*", "a"):
        with pytest.raises(UsageError, match="is not one resource"):
            files.request(Action.PUB, text)


def test_a_file_of_version_4_is_named_where_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    for content in ("accounts: [", "accounts: [{accessKey: a}]"):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"plain_acl\.yml: "):
            files.migrate(path)
    path.write_text("accounts: [{accessKey: a, secretKey: s}]")
    assert set(files.migrate(path).tables.users) == {"a"}
