"""Servers of OpenAI's API: each script starts one, and `..clients` asks it."""
