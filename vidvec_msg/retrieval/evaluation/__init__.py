"""From scores to numbers that can be trusted: ranking, intervals, tests, and what the numbers hide."""
