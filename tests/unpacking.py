"""Unpacking: archives among the test vectors, also with a Python before 3.11.4."""

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

FILTER: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Refuses what leads out of the directory; older versions of Python do not know it."""


def unpack(
    archive: tarfile.TarFile, directory: Path, members: Iterable[tarfile.TarInfo] | None = None
) -> None:
    """Unpack these members of an archive, or all."""
    archive.extractall(directory, members, **FILTER)
