#!/bin/bash
# Run a batch on all GPUs of a Slurm job: sbatch --nodes 4 --gpus-per-node 8 deploy/slurm/batch.sh IN.jsonl OUT.jsonl [options of dlstep batch]
#
# The script starts a Ray cluster on the nodes of the job, which ends with the job. A job requeued after a preemption resumes its
# batch. IN, OUT and the model must be on a file system that all nodes share, and the environment needs dlstep[ray].
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

# With `--block`, the Ray processes of a node end with its job step.
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
# The batch starts with the first engine that is ready; other nodes join later.
dlstep batch "$@" --ray "$head:$port"
