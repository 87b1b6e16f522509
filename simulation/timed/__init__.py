"""Timed workload: a day of delay levels, delivery times, transactions and retries."""
