"""Where candidate clips come from: YouTube, a collection of one's own, a list of links; one contract."""
