"""Descriptor pool of the proxy's messages.

The official Python client registers messages of the same names in protobuf's default pool, which
takes each name once: a process could not have both.
"""

from typing import Final

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL: Final = DescriptorPool()

for known in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
