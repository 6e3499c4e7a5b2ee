"""Models served under objectives, by the node with its batches sized by them and without."""
