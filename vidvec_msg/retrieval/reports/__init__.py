"""How an evaluation is shown: pages, pictures, tables."""
