import json
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.cli.running import invoke, must_fail, roquet

from roquet.model.errors import UsageError


class HealthPages(BaseHTTPRequestHandler):
    """A server that is alive, and ready from its third answer on."""

    asked = 0
    reason = b"its disk is almost full: it takes no messages\n"

    def do_GET(self) -> None:
        HealthPages.asked += 1
        is_ready = self.path == "/healthz" or self.asked > 2
        body = b"ready\n" if is_ready else self.reason
        self.send_response(200 if is_ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    HealthPages.asked = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthPages) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_not_ready_ends_with_code_1_and_the_reason(address: str) -> None:
    result = roquet("health", address)
    assert (result.exit_code, result.output) == (
        1, f"{address}: its disk is almost full: it takes no messages\n",
    )  # fmt: skip
    assert json.loads(roquet("health", address, "--json").output)["healthy"] is False
    result = roquet("health", address)
    assert (result.exit_code, result.output) == (0, f"{address}: ready\n")


def test_a_refusal_without_a_reason_is_not_health(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HealthPages, "reason", b"")
    result = roquet("health", address)
    assert (result.exit_code, result.output) == (1, f"{address}: status 503\n")


def test_a_server_can_be_waited_for(address: str) -> None:
    assert roquet("health", address, "--wait", 20).exit_code == 0
    assert HealthPages.asked == 3


def test_a_live_server_need_not_be_ready(address: str) -> None:
    assert roquet("health", address, "--live").output == f"{address}: ok\n"


def test_a_server_that_does_not_answer_is_not_healthy() -> None:
    result = roquet("health", "127.0.0.1:1")
    assert result.exit_code == 1
    assert "cannot read 127.0.0.1:1/readyz" in result.output
    assert "is a server with --metrics running there?" in result.output
    must_fail(UsageError, "HOST:PORT", "health", "nonsense")


def test_a_reason_cannot_steer_the_terminal(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HealthPages, "reason", b"\x1b[2Jgone\n")
    output = roquet("health", address).output
    assert "gone" in output
    assert "\x1b" not in output


def test_a_bundle_is_one_private_file(tmp_path: Path) -> None:
    log, archive = tmp_path / "broker.log", tmp_path / "bundle.tar.gz"
    log.write_text("a line\n")
    command = ["support", "bundle", str(archive), "--log", str(log), "--data", str(tmp_path / "no")]
    result = invoke(*command)
    assert result.exit_code == 0
    assert f"{archive}: " in result.output
    assert "left out: " in result.output
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as packed:
        assert "roquet-support/logs/broker.log" in packed.getnames()
    facts = json.loads(invoke(*command, "--json").stdout)
    assert "logs/broker.log" in facts["files"]
    assert len(facts["faults"]) == 1
