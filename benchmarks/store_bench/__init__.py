"""What benchmarks/stores.py is made of."""
