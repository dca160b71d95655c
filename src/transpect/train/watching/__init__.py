"""What a run tells while it trains: loggers, trackers of others, the terminal, measures, samples of what it reads."""
