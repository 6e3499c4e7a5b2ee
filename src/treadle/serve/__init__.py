"""Executes inference: from a request's bytes to a model in a worker process, and back."""
