"""Corpus → a vectors folder: encoding in slices, on one machine or many, and what is written on the way."""
