"""Descriptors and types of RocketMQ 5's messages are as protoc makes them."""

import grpc_code


def test_the_generated_files_are_those_of_the_protos() -> None:
    assert grpc_code.differing() == [], "tools/generators/grpc_code.py --write makes them"
