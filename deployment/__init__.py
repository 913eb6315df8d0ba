"""From bare hosts to a verified cluster: site file, plan, journal, and the playbooks run stage by stage."""
