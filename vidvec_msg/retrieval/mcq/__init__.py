"""Multiple choice: questions about clips, answered by embedders, language models and endpoints; ``mcq``."""
