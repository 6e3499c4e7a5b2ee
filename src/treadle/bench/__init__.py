"""The load generator: drives a node with requests and says how it held up."""
