"""The leaderboard: scores of schedulers on the tiers, between two frozen anchors."""
