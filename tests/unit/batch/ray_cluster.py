"""A cluster of Ray for tests: `node` on stdin starts a node and prints the process id of its raylet, end of file ends all."""

import sys

from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
print(cluster.address, flush=True)
for _ in sys.stdin:
    node = cluster.add_node(num_cpus=2)
    print(node.all_processes["raylet"][0].process.pid, flush=True)
cluster.shutdown()
