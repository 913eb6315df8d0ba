"""What a scenario runs against."""
