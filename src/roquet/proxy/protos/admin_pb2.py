"""Requests and answers of RocketMQ 5's service for operators."""

from roquet.proxy.protos.pool import names_of

globals().update(names_of("admin.proto"))
