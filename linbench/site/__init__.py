"""The leaderboard: a static site made of stored results."""
