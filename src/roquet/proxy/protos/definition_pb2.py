"""Values of RocketMQ 5's messages: topics, messages, queues, settings, statuses."""

from roquet.proxy.protos.pool import names_of

globals().update(names_of("definition.proto"))
