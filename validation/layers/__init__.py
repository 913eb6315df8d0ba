"""The output of the tools of a host, as data: pure parsers, each tested on recorded output of the tool."""
