"""All files for an installation without the internet, in one directory: built, verified, pushed and used."""
