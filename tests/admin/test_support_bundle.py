import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from roquet.admin import support_bundle
from roquet.admin.support_bundle import BundleSources, collect, pack
from roquet.broker.app import BrokerServer
from roquet.broker.settings.config import BrokerConfig
from roquet.metrics.exporter_settings import MetricsExporterType
from roquet.net.clock import SystemClock
from roquet.observe.http_server import HttpServer

PROM: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 0,
    "metrics_exporter": MetricsExporterType.PROM,
    "metrics_port": 0,
    "log_file_size": 1 << 20,
    "queue_file_entries": 1000,
}
SECRET = "hunter2"


@pytest.fixture(autouse=True)
def pages_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support_bundle, "PAGES_APART_MS", 1)


async def test_a_bundle_has_everything_but_secrets(tmp_path: Path) -> None:
    data = tmp_path / "broker-a"
    conf = tmp_path / "broker.conf"
    conf.write_text(
        'brokerName = broker-a\ninitAuthenticationUser = {"username":"a","password":"hunter2"}\n'
        "tlsServerKeyPassword=hunter2\n"
    )
    log = tmp_path / "broker-a.log"
    log.write_text("a line\n")
    async with BrokerServer(BrokerConfig(store_dir=data, **PROM)) as server:
        (data / "config").mkdir(exist_ok=True)
        (data / "config" / "access.json").write_text(SECRET)
        (data / "config" / "topics.json").write_text("{}")
        (data / "config" / "broker.conf").write_text(f"tlsServerKeyPassword={SECRET}\n")
        (data / "config" / "acl").mkdir()
        (data / "config" / "acl" / "plain_acl.yml").write_text(f"secretKey: {SECRET}\n")
        (data / "config" / "server.key").write_text(SECRET)
        sources = BundleSources(
            data=[data], configs=[conf], logs=[log],
            metrics=[f"127.0.0.1:{server.metrics_port}"],
            environ={"ROQUET_INNER_CREDENTIALS": SECRET, "ROQUET_PORT": "1", "PATH": "/bin"},
        )  # fmt: skip
        bundle = await collect(sources, SystemClock())
    assert bundle["faults.txt"] == b""
    assert {
        "versions.txt", "environment.txt", "broker.conf", "logs/broker-a.log", "metrics-1.prom",
        "metrics-2.prom", "readiness.txt", "stacks.txt", "broker-a/sizes.json",
        "broker-a/check.json", "broker-a/tables/topics.json",
    } <= bundle.keys()  # fmt: skip
    assert SECRET.encode() not in b"".join(bundle.values())
    assert b"brokerName=broker-a\n" in bundle["broker.conf"]
    assert b"ROQUET_PORT=1\n" in bundle["environment.txt"]
    assert b"PATH" not in bundle["environment.txt"]
    assert b"roquet_build_info" in bundle["metrics-2.prom"]
    with tarfile.open(fileobj=io.BytesIO(pack(bundle, 5))) as archive:
        assert set(archive.getnames()) == {f"roquet-support/{name}" for name in bundle}


async def test_what_is_not_there_is_a_fault_and_the_rest_is_collected(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("a line\n")
    sources = BundleSources(
        data=[tmp_path / "none"], configs=[tmp_path / "none.conf"], logs=[log],
        metrics=["127.0.0.1:1", "nonsense"],
    )  # fmt: skip
    bundle = await collect(sources, SystemClock())
    faults = bundle["faults.txt"].decode()
    assert bundle["logs/server.log"] == b"a line\n"
    for word in ("none: ", "none.conf", "127.0.0.1:1", "nonsense"):
        assert word in faults


async def test_sources_of_one_name_are_all_there(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / number / "data" / "commitlog").mkdir(parents=True)
        (tmp_path / number / "a.conf").write_text(f"brokerName={number}\n")
        (tmp_path / number / "a.log").write_text(number)
    paths = [tmp_path / "1", tmp_path / "2"]
    sources = BundleSources(
        data=[path / "data" for path in paths], configs=[path / "a.conf" for path in paths],
        logs=[path / "a.log" for path in paths],
    )  # fmt: skip
    bundle = await collect(sources, SystemClock())
    assert (bundle["logs/a.log"], bundle["logs/a.log-2"]) == (b"1", b"2")
    assert (bundle["a.conf"], bundle["a.conf-2"]) == (b"brokerName=1\n", b"brokerName=2\n")
    assert {"data/sizes.json", "data-2/sizes.json"} <= bundle.keys()


async def test_a_page_that_a_server_does_not_have_is_a_fault() -> None:
    async with HttpServer({}, "127.0.0.1", 0) as server:
        sources = BundleSources(metrics=[f"127.0.0.1:{server.port}"])
        bundle = await collect(sources, SystemClock())
    assert bundle["faults.txt"].count(b"status 404") == 3
    assert "stacks.txt" not in bundle


async def test_a_large_log_is_checked_only_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with BrokerServer(BrokerConfig(store_dir=tmp_path / "data", **PROM)):
        (tmp_path / "data" / "commitlog").mkdir(exist_ok=True)
        (tmp_path / "data" / "commitlog" / ("0" * 20)).write_bytes(b"x" * (1 << 20))
        monkeypatch.setattr(support_bundle, "CHECKED_SIZE_MAX", 100)
        monkeypatch.setattr(support_bundle, "LOG_SIZE_MAX", 5)
        for checks_all, words in ((False, b"not checked"), (True, b'"verdict"')):
            sources = BundleSources(data=[tmp_path / "data"], checks_all=checks_all)
            bundle = await collect(sources, SystemClock())
            assert words in bundle["data/check.json"]


async def test_settings_files_are_shown_without_secrets_or_left_out(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(
        f"accounts:\n- accessKey: a\n  secretKey:\n    {SECRET}\n"
    )
    (tmp_path / "users.json").write_text(f'[{{"password":\n"{SECRET}"')
    sources = BundleSources(configs=[tmp_path / "plain_acl.yml", tmp_path / "users.json"])
    bundle = await collect(sources, SystemClock())
    assert SECRET.encode() not in b"".join(bundle.values())
    assert bundle["plain_acl.yml"].startswith(b"accounts:")
    assert "users.json" not in bundle
    assert b"users.json: left out" in bundle["faults.txt"]


@pytest.mark.parametrize(
    "name",
    ["access-2026.json", "access.json.bak", "my-users.json", "topics-old.json", "topics.json.1"],
)
async def test_a_file_beside_the_tables_is_left_out_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(f'{{"users":[{{"password":"{SECRET}"}}]}}')
    bundle = await collect(BundleSources(data=[tmp_path]), SystemClock())
    assert SECRET.encode() not in b"".join(bundle.values())


async def test_a_link_in_a_data_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "topics.json").write_text(SECRET)
    config = tmp_path / "data" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").symlink_to(tmp_path / "outside" / "topics.json")
    (config / "linked").symlink_to(tmp_path / "outside")
    bundle = await collect(BundleSources(data=[tmp_path / "data"]), SystemClock())
    assert SECRET.encode() not in b"".join(bundle.values())
    assert bundle["data/sizes.json"] == b"{}"


async def test_folders_on_another_disk_are_measured(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / f"{0:020d}").write_bytes(bytes(7))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "commitlog").symlink_to(tmp_path / "disk")
    bundle = await collect(BundleSources(data=[tmp_path / "data"]), SystemClock())
    assert b'"commitlog/00000000000000000000": 7' in bundle["data/sizes.json"]


@pytest.mark.parametrize(
    "content",
    [
        '{"users":[{"username":"a","password":"hunter2"}]}',
        '{"topicConfigTable":{"t":{"attributes":{"+url":"http://u:hunter2@host"}}}}',
        '{dataVersion:{},table:{0:{"secretKey":"hunter2"}}}',
        "secretKey: hunter2",
        '{"password":"hunter2"',
    ],
)
async def test_a_table_shows_no_secret_whatever_it_has(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(content)
    bundle = await collect(BundleSources(data=[tmp_path]), SystemClock())
    assert SECRET.encode() not in b"".join(bundle.values())
    assert f"{tmp_path.name}/tables/topics.json" in bundle


async def test_a_pipe_among_the_sources_is_a_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    sources = BundleSources(configs=[tmp_path / "pipe"], logs=[tmp_path / "pipe"])
    bundle = await collect(sources, SystemClock())
    assert bundle["faults.txt"].count(b"no file, but a pipe") == 2
