"""Calls of operators to brokers, name servers and the members of a group."""
