"""The clusters that scenarios run against: a lab or an existing one."""
