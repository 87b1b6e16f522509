"""What an operator asks of a cluster: plain async functions, by noun."""
