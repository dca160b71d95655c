"""Opening a model, a file a peer."""
