"""Who holds what, and who is entitled to what: ledger, quotas, fair shares, tiers."""
