"""Measures a whole node: services with objectives and trainers that it starts, on one GPU.

A *play* is one scenario in one mode. It starts a node of its own, waits until the services are
healthy and the trainers train, has every service put its load on itself from one moment on, and
looks at the node each second. What it comes to is added to a file.
"""
