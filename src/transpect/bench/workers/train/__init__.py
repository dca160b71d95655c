"""Updates of a small GPT-2, a file a program."""
