"""Messages of our pool, beside those of the official client, which have the same names."""

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from roquet.proxy.protos import definition_pb2 as pb
from roquet.proxy.protos.pool import DESCRIPTORS, POOL


def test_the_default_pool_takes_the_same_names_from_somebody_else() -> None:
    theirs = descriptor_pool.DescriptorPool()
    for file in FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        theirs.AddSerializedFile(file.SerializeToString())
    assert POOL.FindMessageTypeByName("apache.rocketmq.v2.Message") is pb.Message.DESCRIPTOR
    default = descriptor_pool.Default()
    try:
        default.FindMessageTypeByName("apache.rocketmq.v2.Message")
    except KeyError:
        return
    raise AssertionError("ours are in the pool that the official client uses")
