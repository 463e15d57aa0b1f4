"""Persona → pair, by any chat endpoint; filters with reasons."""
