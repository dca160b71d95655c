"""Ways to compute attention, ours and torch's own."""
