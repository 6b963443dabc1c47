"""The acceptance run: the benchmark, special workloads, and the goals of localspec."""
