"""Decisions of a gRPC proxy: statuses, limits of requests, renewal of receipts.

Sources: classes of Apache RocketMQ 5.5.0's proxy, and answers that it gave.
"""
