"""Dual encoders: two towers that end in one space (`clip:`, `videoprism:`)."""
