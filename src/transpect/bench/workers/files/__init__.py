"""Files that a peer writes for itself from another's."""
