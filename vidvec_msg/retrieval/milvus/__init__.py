"""Indexes in Milvus, behind the contract of ``indexes.searchable``."""
