"""Rebalance: the queues that a group assigns to this member, their locks and listeners.

notice, timer, route ──▶ rebalancer ──▶ allocation        this member's queues
──▶ queue_locks       for ordered consumption
──▶ assigned_queues   a reader for each queue
──▶ listeners         assigned, revoked, lost
"""
