from pathlib import Path

import pytest

from roquet.cli.servers.server_options import server_tls
from roquet.model.errors import UsageError


def test_a_certificate_is_what_turns_tls_on() -> None:
    assert server_tls(None, None, None) is None
    tls = server_tls(Path("c.pem"), Path("k.pem"), None)
    assert tls is not None
    assert (tls.cert, tls.key) == (Path("c.pem"), Path("k.pem"))


def test_a_key_without_a_certificate_is_an_error() -> None:
    with pytest.raises(UsageError, match="of no use without --tls-cert"):
        server_tls(None, Path("server.key"), None)
