"""Spans: what a client sends, receives, handles and settles, for OpenTelemetry.

    producer    send orders       in a batch or a transaction: create orders, one for each message
                    │             the context travels in properties: traceparent, tracestate
    consumer    receive orders    one for each reply with messages, linked to their contexts
                process orders    a handler; a child of the message's context, and linked to it
                ack orders        also nack, dead_letter, commit, rollback

Names and attributes follow OpenTelemetry's semantic conventions for messaging. The modules are
imported only where the setting `tracing` is on: they need the package opentelemetry-api.
"""
