"""Vectors of sentences, a file a peer."""
