"""The router: the queue of waiting requests, the replicas, and the placement of requests on them."""
