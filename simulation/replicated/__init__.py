"""Replicated workload: three brokers of one name elect, lose and replace their master."""
