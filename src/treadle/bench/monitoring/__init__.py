"""Holds what the monitor recorded of a real GPU against what was done to it, and says its cost."""
