"""Use and entitlement: ledger, quotas, fair shares, tiers."""
