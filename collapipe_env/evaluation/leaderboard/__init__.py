"""The leaderboard: scores of schedulers on the suite, between the even split and the bar of each id."""
