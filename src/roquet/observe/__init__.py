"""Observe: what a server process shows of itself: metrics, health, log lines and stacks."""
