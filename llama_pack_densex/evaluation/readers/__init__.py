"""Readers of datasets, one module a format. `evaluation.datasets.read_dataset` finds the right one."""
