"""Open-loop load on a server of the Open Inference Protocol, and the rate up to which it holds."""
