"""A session is made ready for the source."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from roquet.model.errors import ConfigError
from roquet.spark import versions
from roquet.spark.session import LOCAL_CONF, SESSION_CONF, is_local, prepare_environment, session

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
