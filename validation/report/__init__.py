"""Renderings of the record: HTML, Markdown, JUnit."""
