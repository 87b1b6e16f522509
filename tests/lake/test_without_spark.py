"""The lake is imported where there is no PySpark."""

import subprocess
import sys
from textwrap import dedent

CODE = dedent(
    """
    import importlib, pkgutil, sys

    sys.modules["pyspark"] = None  # as if it was not installed
    import roquet.lake

    for module in pkgutil.walk_packages(roquet.lake.__path__, "roquet.lake."):
        importlib.import_module(module.name)
    assert not any(name.startswith("roquet.spark") for name in sys.modules)
    """
)


def test_every_module_of_the_lake_is_imported_without_pyspark() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
