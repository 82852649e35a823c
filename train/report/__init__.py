"""Reads a workdir and says what the data supports: statistics, tables, charts, the page. Writes nothing to training."""
