"""The controller against fixed knobs, beside a simulated training, in virtual time."""
