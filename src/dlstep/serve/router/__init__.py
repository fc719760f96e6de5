"""The router: waiting requests, the replicas that answer them, and the choice among these."""
