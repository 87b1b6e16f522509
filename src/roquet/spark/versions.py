"""The supported pyspark version: the data source API changes with each minor one."""

from typing import Final

PYSPARK_VERSION: Final = (4, 3)

ADVICE: Final = "pip install 'roquet[spark]'"


def require_spark(installed: str | None = None) -> None:
    """Raise ImportError, with the command to install it, unless pyspark is the supported one."""
    version = _installed() if installed is None else installed
    if tuple(version.split(".")[:2]) != tuple(map(str, PYSPARK_VERSION)):
        wanted = ".".join(map(str, PYSPARK_VERSION))
        text = f"Roquet's source for Spark needs pyspark {wanted}, this is {version}: {ADVICE}"
        raise ImportError(text)


def _installed() -> str:
    try:
        from pyspark import __version__
    except ImportError as error:
        raise ImportError(f"Roquet's source for Spark needs pyspark: {ADVICE}") from error
    return str(__version__)
