"""Reports of finished runs: one page with everything in it, and videos of episodes."""
