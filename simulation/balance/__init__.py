"""Balance workload: members join, leave and die; brokers crash, are slow or cut off."""
