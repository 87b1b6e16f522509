"""Operator requests: what brokers ask of a consumer on behalf of operators.

broker ──▶ broker_requests ──▶ rebalance.assigned_queues   a group's offsets are set
                           ──▶ the handler of `run`        is called with one message
                           ──▶ running_info, stacks        status and thread dump
"""
