"""Measures how well one GPU is shared: critical requests beside background training.

A *cell* is one critical workload, one background workload and one way of sharing. Every cell of
a critical workload meets the same requests at the same times. Results are appended to a file,
from which the report is made; running again adds requests to the cells that lack them.
"""
