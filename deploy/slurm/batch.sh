#!/bin/bash
# A batch over all GPUs of a Slurm job: sbatch --nodes 4 --gpus-per-node 8 deploy/slurm/batch.sh IN.jsonl OUT.jsonl [options of dlstep batch]
#
# A Ray cluster is started over the nodes of the job and ends with it. Requeued after a preemption, the batch goes on where it was:
# keep IN, OUT and the model on a file system that all nodes have, and Ray in the environment (pip install 'dlstep[ray]').
#SBATCH --job-name=dlstep-batch
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: sbatch [options] $0 IN.jsonl OUT.jsonl [options of dlstep batch]" >&2; exit 2; }
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
port=${RAY_PORT:-6379}
started=()

end() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait || true
}
trap end EXIT

# `--block` keeps a node's Ray in its step, so that it ends with the step.
srun --nodes=1 --ntasks=1 --nodelist="$head" \
    ray start --head --node-ip-address="$head" --port="$port" --include-dashboard=false --block &
started+=($!)
for ((try = 0; ; try++)); do
    ray status --address="$head:$port" >/dev/null 2>&1 && break
    [ "$try" -lt "${RAY_TRIES:-60}" ] || { echo "Ray did not start on $head:$port" >&2; exit 1; }
    sleep 2
done
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 --nodelist="$node" ray start --address="$head:$port" --block &
    started+=($!)
done
# The batch starts with the engines that there are; later nodes join it.
dlstep batch "$@" --ray "$head:$port"
