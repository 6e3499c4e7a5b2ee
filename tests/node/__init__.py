"""Tests of a whole node: a process of its own, seen over HTTP and on the command line."""
