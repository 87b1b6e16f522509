"""Requests and answers of RocketMQ 5's service."""

from roquet.proxy.protos.pool import names_of

globals().update(names_of("service.proto"))
