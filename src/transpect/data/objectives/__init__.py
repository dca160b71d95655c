"""Objectives: what of a document is read and what is predicted. One file a kind."""
