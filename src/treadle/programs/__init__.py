"""Jobs: a queue that outlives the node, and a supervisor for each job that runs."""
