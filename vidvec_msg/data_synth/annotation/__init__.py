"""Candidate clips judged by people: tasks for them, their ratings, and the collection that follows."""
