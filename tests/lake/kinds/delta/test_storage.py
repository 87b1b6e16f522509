"""How deltalake reaches a log: safe commits whatever the environment says, and readable errors."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Log
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tests.lake.conftest import DirectoryObjects
from tests.lake.kinds.delta.delta_log import (
    actions,
    allow_deletion_vectors,
    delete_rows,
    map_columns,
)

from roquet.lake.kinds.delta.storage import check_free, check_stamps, explained_log, log_options
from roquet.lake.objects.object_location import ObjectLocation, parse_location
from roquet.lake.objects.object_store import ObjectStore, StorageFailed
from roquet.lake.snapshot import read_snapshot
from roquet.lake.table import TableConflict, TableDamaged
from roquet.model.errors import ConfigError

ORDERS = ObjectLocation("s3://lake/orders", {"AWS_REGION": "eu-west-1"})


def test_commits_are_conditional_requests_whatever_the_environment_says() -> None:
    assert log_options(Path("/lake")) is None
    assert log_options(ORDERS) == {
        "AWS_REGION": "eu-west-1",
        "AWS_CONDITIONAL_PUT": "etag",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "false",
    }


def test_options_of_other_stores_are_deltalakes_own_names() -> None:
    account = {"AZURE_STORAGE_ACCOUNT_NAME": "acme"}
    place = ObjectLocation("abfss://lake@acme.dfs.core.windows.net/orders", account)
    assert log_options(place) == account
    assert log_options(ObjectLocation("gs://lake/orders")) == {}


def test_an_emulator_of_google_gets_no_credentials() -> None:
    url = "http://127.0.0.1:4443"
    options = log_options(ObjectLocation("gs://lake/orders", {"STORAGE_EMULATOR_HOST": url}))
    assert options is not None
    account = json.loads(options.pop("google_service_account_key"))
    assert (account.pop("gcs_base_url"), account.pop("disable_oauth")) == (url, True)
    assert {*account.values()} == {""}
    assert options == {"google_base_url": url, "allow_http": "true"}


LOADING = """
import os
from roquet.lake.kinds.delta.storage import check_installed
before = dict(os.environ)
check_installed()
assert os.environ == before
"""


def allocator_report(options: str) -> str:
    """What deltalake's allocator says of itself as the process ends."""
    given = {**os.environ, "_RJEM_MALLOC_CONF": f"stats_print:true{options}"}
    command = [sys.executable, "-c", LOADING]
    return subprocess.run(command, env=given, check=True, stderr=subprocess.PIPE, text=True).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other builds of deltalake have no jemalloc")
def test_deltalake_keeps_no_memory_for_each_of_its_threads() -> None:
    """The options are its alone: processes that are started later have those of the user."""
    report = allocator_report("")
    assert "opt.narenas: 1\n" in report
    assert "opt.dirty_decay_ms: 100 " in report


@pytest.mark.skipif(sys.platform != "linux", reason="other builds of deltalake have no jemalloc")
def test_options_of_a_user_win_over_ours() -> None:
    assert "opt.narenas: 3\n" in allocator_report(",narenas:3")


def test_the_environment_is_as_it_was_without_options_of_a_user() -> None:
    clean = {name: value for name, value in os.environ.items() if name != "_RJEM_MALLOC_CONF"}
    subprocess.run([sys.executable, "-c", LOADING], env=clean, check=True)


class Server(ThreadingHTTPServer):
    """Answers every request with 404, and counts them."""

    requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_error(404)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def answering() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("alias", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_log_is_on_the_server_of_the_files_whatever_the_environment_says(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering() as chosen, answering() as other:
        for name, value in {
            alias: other.url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }.items():
            monkeypatch.setenv(name, value)
        storage = {"AWS_ENDPOINT_URL": chosen.url, "AWS_ALLOW_HTTP": "true"}
        location = parse_location("s3://lake/orders", storage, os.environ)
        look = f"DeltaTable.is_deltatable({location.url!r}, {log_options(location)})"
        # In a process of its own: deltalake would not let the servers of this one answer.
        code = f"from deltalake import DeltaTable; {look}"
        subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert chosen.requests > 0
    assert other.requests == 0


def test_a_path_with_the_files_of_others_is_left_alone(objects: DirectoryObjects) -> None:
    store = ObjectStore(ORDERS)
    check_free(ORDERS)
    store.put("_roquet/runs/a", b"{}")
    check_free(ORDERS)
    store.put("theirs.csv", b"")
    with pytest.raises(ConfigError, match="is not empty and no archive of kind delta"):
        check_free(ORDERS)
    store.put("_delta_log/00000000000000000000.json", b"")
    check_free(ORDERS)


@pytest.mark.parametrize("error", [OSError("AWS Error SLOW_DOWN"), DeltaError("SLOW_DOWN")])
def test_errors_of_an_object_store_are_a_sentence(error: Exception) -> None:
    with pytest.raises(StorageFailed, match="SLOW_DOWN"), explained_log(ORDERS):
        raise error


def test_errors_of_a_log_in_a_directory_are_a_sentence_and_those_of_the_disk_pass() -> None:
    with (
        pytest.raises(TableDamaged, match=r"the Delta log of /lake cannot be read, .*: no entry 1"),
        explained_log(Path("/lake")),
    ):
        raise DeltaError("no entry 1")
    with pytest.raises(PermissionError), explained_log(Path("/lake")):
        raise PermissionError


def test_a_refused_commit_is_no_error_of_the_store() -> None:
    with pytest.raises(CommitFailedError), explained_log(ORDERS):
        raise CommitFailedError("another came first")


def others_table(root: Path) -> Path:
    """A table of another writer, with the columns that identify messages."""
    rows = {
        "broker": ["broker-a"] * 40,
        "queue_id": pa.array([0] * 40, pa.int32()),
        "queue_offset": list(range(40)),
    }
    write_deltalake(str(root), pa.table(rows))
    return root


def test_a_table_with_deletion_vectors_is_refused_and_one_that_only_may_have_some_is_not(
    tmp_path: Path,
) -> None:
    root = others_table(tmp_path / "lake")
    allow_deletion_vectors(root)
    assert len(read_snapshot(str(root)).paths) == 1
    delete_rows(root, actions(root, "add")[0]["path"], 3, 4, 7, 11, 18, 29)
    assert list(Log(str(root)).deletion_vectors()), "deltalake has understood it"
    with pytest.raises(ConfigError, match=r"has deletion vectors, .*REORG TABLE"):
        read_snapshot(str(root))


def test_a_table_with_column_mapping_is_refused(tmp_path: Path) -> None:
    root = others_table(tmp_path / "lake")
    map_columns(root)
    with pytest.raises(ConfigError, match=r"to other names in its files .* is name\)"):
        read_snapshot(str(root))


def test_an_entry_that_is_ahead_of_the_clock_is_a_sentence(tmp_path: Path) -> None:
    root = others_table(tmp_path / "lake")
    log = Log(str(root))
    [made_ms] = (entry["timestamp"] for entry in log.history())
    check_stamps(log, root, made_ms)
    with pytest.raises(TableConflict, match=r"is 7 ms ahead of this machine's clock, .* none of"):
        check_stamps(log, root, made_ms - 7)
