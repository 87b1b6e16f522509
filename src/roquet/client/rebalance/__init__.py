"""Rebalance: the queues that a group assigns to this member, their locks and listeners."""
