"""The parts of benchmarks/stores.py."""
