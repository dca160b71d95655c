"""From files to batches: sources give documents, an objective makes examples of them, the loader batches those.

``sources/`` and ``fable/`` need no torch; ``objectives/``, ``batch`` and ``loader`` do.
"""
