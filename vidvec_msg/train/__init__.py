"""Pairs → adapter: the Lightning module, losses, batches, LoRA and callbacks."""
