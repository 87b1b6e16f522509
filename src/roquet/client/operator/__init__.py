"""Operator requests: what brokers ask of a consumer on behalf of operators."""
