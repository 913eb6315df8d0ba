"""What the tools of a host print, as data: pure parsers, each tested on output that was recorded from the tool."""
