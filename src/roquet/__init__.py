"""Roquet: RocketMQ for Python and Spark."""

from typing import Final

__version__: Final = "0.1.0"
