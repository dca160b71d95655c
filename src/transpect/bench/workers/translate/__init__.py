"""Answers of an encoder–decoder, a file a peer."""
