"""The model of a run: read from a recipe, begun from drawn weights or a checkpoint, and what of it is trained."""
