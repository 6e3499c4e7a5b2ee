"""Compares treadle with three other servers, in one run and with one client.

``python -m bench.servers`` from the repository's root. See ``README.md`` beside this file for
what is measured and how each server is set up.
"""
