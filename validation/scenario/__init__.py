"""The scenario file: schema and loader."""
