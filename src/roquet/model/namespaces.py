"""Namespaces: `namespace%name`, which isolates applications that share a cluster.

The prefix of a retry or dead-letter topic stays in front: `%RETRY%namespace%group`. System topics
and groups belong to no namespace. The rules are those of Java's NamespaceUtil.
"""

from typing import Final

from roquet.model.errors import UsageError
from roquet.model.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    is_dlq,
    is_retry,
    is_system_group,
    is_text,
)

SEPARATOR: Final = "%"


def check_namespace(namespace: str) -> str:
    """Return the namespace; raises UsageError if it could not be separated from a name again."""
    if SEPARATOR in namespace or namespace != namespace.strip():
        raise UsageError(f"namespace {namespace!r}: % and blanks around it are not allowed")
    return namespace


def wrap(namespace: str | None, name: str) -> str:
    """Name of a topic or group with its namespace, as brokers know it."""
    if not namespace or not name or not is_text(name) or _is_system_name(name):
        return name  # a name that is not a string is refused where names are checked
    prefix, rest = _split(name)
    if rest.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{rest}"


def unwrap(namespace: str | None, name: str) -> str:
    """Name of a topic or group without the namespace; names of other namespaces are unchanged."""
    if not namespace:
        return name
    prefix, rest = _split(name)
    return prefix + rest.removeprefix(namespace + SEPARATOR)


def namespace_of(name: str) -> str:
    """Namespace of a name; the empty string if it has none."""
    if _is_system_name(name):
        return ""
    namespace, separator, _ = _split(name)[1].partition(SEPARATOR)
    return namespace if separator else ""


def _split(name: str) -> tuple[str, str]:
    if is_retry(name):
        return RETRY_PREFIX, name[len(RETRY_PREFIX) :]
    if is_dlq(name):
        return DLQ_PREFIX, name[len(DLQ_PREFIX) :]
    return "", name


def _is_system_name(name: str) -> bool:
    if name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX):
        return True
    return is_system_group(name)
