"""A day in which messages wait: delay levels, delivery times, transactions, retries."""
