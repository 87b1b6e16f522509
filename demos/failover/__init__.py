"""Failover demo: three brokers whose master is killed, frozen and cut off under load."""
