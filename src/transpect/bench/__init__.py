"""Measured beside other programs, in one run: `harness` takes the turns, a file a task says what is done.

Peers live in environments of their own (`peers`) and work in processes of their own (`worker`, `workers`).
"""
