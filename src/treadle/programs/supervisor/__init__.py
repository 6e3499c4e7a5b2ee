"""The program that watches one job: it outlives the node, and tells how the job ended."""
