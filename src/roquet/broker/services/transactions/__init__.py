"""Transactions: half messages, their ends, and the checks of those that have none."""
