"""The benchmark: models of a realistic cost, fixed workloads, and other systems to compare with."""
