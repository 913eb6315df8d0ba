"""What an installation without the internet needs, in one directory: built, verified, pushed and used."""
