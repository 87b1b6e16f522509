"""Descriptor pool of the proxy's messages, and the classes made from it.

The official Python client registers messages of the same names in protobuf's default pool, which
takes each name once: a process could not have both.
"""

from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

DESCRIPTORS: Final = Path(__file__).with_name("rocketmq_v2.desc")

POOL: Final = DescriptorPool()

for _file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
    POOL.AddSerializedFile(_file.SerializeToString())


def names_of(file: str) -> dict[str, Any]:
    """Message classes, enums and their values of one file, such as `service.proto`, by name."""
    found = POOL.FindFileByName(f"apache/rocketmq/v2/{file}")
    enums = found.enum_types_by_name
    values = {value.name: value.number for enum in enums.values() for value in enum.values}
    messages = found.message_types_by_name
    return {
        **{name: GetMessageClass(message) for name, message in messages.items()},
        **{name: EnumTypeWrapper(enum) for name, enum in enums.items()},
        **values,
    }
