"""Files and arguments of roquet acl: an export, an import, and the request of `why`."""

import os
from pathlib import Path
from typing import Final

from roquet.access.translation import AccessDocument, decode_document, tables_of
from roquet.model.access import AccessTables, Action, Match, Resource
from roquet.model.errors import FieldError, RoquetError, UsageError
from roquet.rules.access import plain_acl
from roquet.rules.access.changes import AccessChangeRefused
from roquet.rules.access.decision import AccessRequest
from roquet.rules.access.patterns import parse_pattern
from roquet.rules.access.plain_acl import MigratedAccess
from roquet.wire.fastjson import codec
from roquet.wire.plain_acl import decode_plain_acl

PRIVATE: Final = 0o600


def write(path: Path, document: AccessDocument) -> None:
    """Write an export, which its owner alone can read.

    Raises RoquetError if there are no passwords in it, and UsageError for a path that exists.
    """
    if any(not user.password for user in document.users):
        raise RoquetError("the broker shows passwords to super users alone: export as one of them")
    data = codec.dumps(document, standard=True, pretty=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise UsageError(f"{path} exists already: name another file") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def read(path: Path) -> AccessTables:
    """Read and check an export. Raises UsageError."""
    try:
        return tables_of(decode_document(path.read_bytes()))
    except FieldError as error:
        raise UsageError(f"{path}: {error}") from error


def migrate(path: Path) -> MigratedAccess:
    """Read plain_acl.yml of Apache RocketMQ 4 as users and policies. Raises UsageError."""
    try:
        return plain_acl.migrate(decode_plain_acl(path.read_bytes()))
    except (FieldError, AccessChangeRefused) as error:
        raise UsageError(f"{path}: {error}") from error


def request(action: Action, resource: str) -> AccessRequest:
    """The request that `why` asks about. Raises UsageError for a text that names no resource."""
    pattern = parse_pattern(resource)
    if pattern is None or pattern.kind is None or pattern.match is not Match.LITERAL:
        raise UsageError(
            f"{resource!r} is not one resource: Topic:orders, Group:billing, Cluster:…"
        )
    return AccessRequest(Resource(pattern.kind, pattern.name), (action,))
