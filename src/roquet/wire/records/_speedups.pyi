from collections.abc import Iterable
from typing import Any

def set_special(special: Iterable[str]) -> None: ...
def __getattr__(name: str) -> Any: ...  # compiled forms, looked up by the names of the Python ones
