"""Whole runs of training with logging, evaluation and checkpoints, a file a program."""
