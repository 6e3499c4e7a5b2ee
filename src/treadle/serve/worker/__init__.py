"""The program that hosts models, and the two ends of its channel to the node."""
