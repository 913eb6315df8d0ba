"""Who has to make way for whom: reclaim rules, victims, nominations."""
