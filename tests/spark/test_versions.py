"""Unsupported pyspark versions are refused with the command to install the right one."""

import importlib
import re
import sys

import pyspark
import pytest

from roquet.spark import versions
from roquet.spark.versions import require_spark


def test_the_installed_version_is_supported() -> None:
    require_spark()
    require_spark("4.3.7")
    assert pyspark.__version__.startswith("4.3.")


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.2.9", "4.4.0", "4.30.0", "5.0"])
def test_any_other_version_is_an_error(version: str) -> None:
    text = f"needs pyspark 4.3, this is {version}: pip install 'roquet[spark]'"
    with pytest.raises(ImportError, match=re.escape(text)):
        require_spark(version)


def test_an_unsupported_spark_starts_without_the_source_and_a_log_line_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(versions, "PYSPARK_VERSION", (4, 9))
    monkeypatch.delitem(sys.modules, "pyspark_roquet", raising=False)
    package = importlib.import_module("pyspark_roquet")
    monkeypatch.delitem(sys.modules, "pyspark_roquet")
    assert not hasattr(package, "DefaultSource"), "an error would hide all other sources, too"
    assert "needs pyspark 4.9, this is 4.3" in caplog.text


def test_none_is_named_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ImportError, match="pip install"):
        require_spark()
