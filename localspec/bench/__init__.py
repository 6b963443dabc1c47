"""Measuring: models of a realistic cost, fixed workloads, other systems to compare with."""
