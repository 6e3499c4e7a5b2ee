"""The node: reads the configuration, wires everything once, lives and ends."""
