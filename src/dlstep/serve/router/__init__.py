"""The router: the queue of waiting requests, the replicas, and the placement on them."""
