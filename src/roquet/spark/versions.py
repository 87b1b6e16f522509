"""Versions: the pyspark that the source works with; its interface changes with each minor one."""

from typing import Final

PYSPARK_VERSION: Final = (4, 3)

ADVICE: Final = "pip install 'roquet[spark]'"


def require_spark(installed: str | None = None) -> None:
    """ImportError, which says what to install, when there is another pyspark or none."""
    found = _installed() if installed is None else installed
    if tuple(found.split(".")[:2]) != tuple(map(str, PYSPARK_VERSION)):
        wanted = ".".join(map(str, PYSPARK_VERSION))
        text = f"Roquet's source for Spark needs pyspark {wanted}, this is {found}: {ADVICE}"
        raise ImportError(text)


def _installed() -> str:
    try:
        from pyspark import __version__
    except ImportError as error:
        raise ImportError(f"Roquet's source for Spark needs pyspark: {ADVICE}") from error
    return str(__version__)
