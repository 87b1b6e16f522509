"""The nouns: frozen values that every layer shares; no clock, no bytes, no files.

By subject:

    message, queue, results          messages, queue addresses, results of sends and pulls
    topic, route, subscription       topics and groups, brokers of a topic, members of groups
    names, namespaces, properties    names of topics, groups and message properties
    flags, errors                    bit sets, the error tree
    settings, config_check           settings from text, and their checks
    printable_text                   foreign text made safe to show
"""

import copyreg
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def read_only(entries: Mapping[K, V]) -> MappingProxyType[K, V]:
    """A copy of a mapping that nobody can write to."""
    return MappingProxyType(dict(entries))


# Values hold such mappings, and programs copy them and hand them to other processes, which Python
# does not do by itself.
copyreg.pickle(MappingProxyType, lambda entries: (read_only, (dict(entries),)))
