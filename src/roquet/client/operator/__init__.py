"""Operator requests: what brokers ask of a consumer on behalf of operators.

broker ──▶ broker_requests ──▶ rebalance.offset_reset   a group's offsets are set
                           ──▶ consume_directly         one message for the handler
                           ──▶ running_info, net.stacks status and thread dump
"""
