"""Simulator: a cluster in virtual time, its workload and faults drawn from a seed, and checks."""
