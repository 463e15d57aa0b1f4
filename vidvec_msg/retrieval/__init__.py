"""Corpus → vectors → index → run → numbers → report."""
