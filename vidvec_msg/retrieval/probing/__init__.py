"""Probes: where a model is read and how it is asked, chosen on validation queries, told on the test."""
