"""transpect: one readable Transformer core, trained, loaded, decoded, served and looked into."""

__version__ = "0.1.0"
