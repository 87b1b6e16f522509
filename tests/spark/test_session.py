"""A session is made ready for the source."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from roquet.model.errors import ConfigError
from roquet.spark import session as session_module
from roquet.spark import versions
from roquet.spark.session import (
    CORES_VARIABLE,
    LOCAL_CONF,
    SESSION_CONF,
    cores_of_environment,
    is_local,
    linked_home,
    local_cores,
    prepare_environment,
    session,
)

CLUSTER = "spark://spark:7077"


def test_workers_get_this_python_and_a_java(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    prepare_environment(environ)
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert (Path(environ["JAVA_HOME"]) / "bin" / "java").exists()


def test_an_address_that_the_user_gave_stays(tmp_path: Path) -> None:
    environ = {"SPARK_LOCAL_IP": "10.0.0.5", "XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    prepare_environment(environ)
    assert environ["SPARK_LOCAL_IP"] == "10.0.0.5"


def test_a_home_of_spark_that_the_user_gave_stays(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    prepare_environment(environ)
    assert Path(environ["SPARK_HOME"]).is_relative_to(tmp_path)
    environ["SPARK_HOME"] = "/opt/spark"
    prepare_environment(environ)
    assert environ["SPARK_HOME"] == "/opt/spark"
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    prepare_environment(environ, CLUSTER)
    assert "SPARK_HOME" not in environ


@pytest.mark.parametrize(
    ("master", "here"), [("local", True), ("local[*,4]", True), (CLUSTER, False), ("yarn", False)]
)
def test_a_master_is_here_or_elsewhere(master: str, *, here: bool) -> None:
    assert is_local(master) is here


def test_a_cluster_s_executors_can_call_the_driver_back(tmp_path: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    prepare_environment(environ, CLUSTER)
    assert "SPARK_LOCAL_IP" not in environ, "127.0.0.1 would be the executors' own machine"
    assert not [name for name in SESSION_CONF if name.startswith("spark.driver.")]


def test_a_cluster_s_python_may_be_elsewhere(tmp_path: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    prepare_environment(environ, CLUSTER)
    assert environ["PYSPARK_PYTHON"] == sys.executable
    environ["PYSPARK_PYTHON"] = "./environment/bin/python"
    prepare_environment(environ, CLUSTER)
    assert environ["PYSPARK_PYTHON"] == "./environment/bin/python"
    assert environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    prepare_environment(environ)
    assert environ["PYSPARK_PYTHON"] == sys.executable, "here there is no other one"


def test_a_session_has_our_settings_and_those_of_the_caller(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == LOCAL_CONF["spark.sql.session.timeZone"]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.sparkContext.master == "local[2]"


def test_another_pyspark_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PYSPARK_VERSION", (4, 9))
    with pytest.raises(ConfigError, match=r"needs pyspark 4\.9, this is 4\.3"):
        session("app")


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("local-cluster[2,1,1024]", 1),
        (CLUSTER, None),
    ],
)
def test_the_cores_of_a_local_master_are_known(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


@pytest.mark.parametrize(("text", "cores"), [("8", 8), ("0", None), ("many", None), ("", None)])
def test_the_cores_in_the_environment_are_a_number(text: str, cores: int | None) -> None:
    assert cores_of_environment({CORES_VARIABLE: text}) == cores
    assert cores_of_environment({}) is None


class Builder:
    """Takes a session's settings, and notes what its JVM would see."""

    def __init__(self) -> None:
        self.url = ""
        self.settings: dict[str, str] = {}
        self.cores: str | None = None

    def master(self, url: str) -> "Builder":
        self.url = url
        return self

    remote = master

    def appName(self, _: str) -> "Builder":  # noqa: N802
        return self

    def config(self, name: str, value: str) -> "Builder":
        self.settings[name] = value
        return self

    def getOrCreate(self) -> str:  # noqa: N802
        self.cores = os.environ.get(CORES_VARIABLE)
        return "session"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()
    monkeypatch.setattr(SparkSession, "builder", made)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LOCAL_IP"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back when the test is over
    return made


def test_only_the_jvm_of_a_local_session_is_told_its_cores(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session("app", "local[3]")
    assert builder.cores == "3"
    assert CORES_VARIABLE not in os.environ
    monkeypatch.setenv(CORES_VARIABLE, "5")
    session("app", CLUSTER)
    assert builder.cores is None, "they were another session's"
    assert os.environ[CORES_VARIABLE] == "5"


def test_spark_connect_gets_what_a_server_can_set_and_needs_no_java(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> Path:
        raise AssertionError("nobody needs a Java here")

    monkeypatch.setattr("roquet.spark.session.java_home", none)
    assert session("app", "sc://spark:15002") == "session"  # type: ignore[comparison-overlap]
    assert builder.url == "sc://spark:15002"
    assert builder.settings == SESSION_CONF


def test_without_grpc_spark_connect_says_what_to_install(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> None:
        raise ImportError("grpcio must be installed")

    monkeypatch.setattr(builder, "getOrCreate", missing)
    with pytest.raises(
        ConfigError, match=r"needs gRPC: pip install 'pyspark\[connect\]==4\.3\.\*'"
    ):
        session("app", "sc://spark:15002")


def test_the_home_has_the_scripts_and_jars_but_no_archive(tmp_path: Path) -> None:
    home = linked_home({"XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert (home / "bin" / "spark-submit").exists()
    assert any((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) == home, "made once"
    assert linked_home({"HOME": str(tmp_path)}) == tmp_path / ".cache/roquet/spark" / home.name


def test_where_no_links_can_be_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "roquet").write_text("a file where the directory would be")
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_a_package_without_an_archive_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "find_spec", lambda _: None)
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None
    monkeypatch.undo()
    monkeypatch.setattr(session_module, "LEFT_OUT", "no-such-directory")
    assert linked_home({"XDG_CACHE_HOME": str(tmp_path)}) is None
