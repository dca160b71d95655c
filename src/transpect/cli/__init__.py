"""The command line: `transpect.cli.main` and one file a command."""
