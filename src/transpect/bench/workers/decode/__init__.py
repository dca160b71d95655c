"""Greedy decoding, a file a peer."""
