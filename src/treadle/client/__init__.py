"""Talks to a node: what the command line and the load generator share."""
