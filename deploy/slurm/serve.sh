#!/bin/bash
# A server on each node of a Slurm job: sbatch --nodes 2 --gpus-per-node 8 deploy/slurm/serve.sh MODEL [options of dlstep serve]
#
# Each server has an engine for each GPU of its node. Their addresses are written to ADDRESSES (default: dlstep-JOBID.txt), one a
# line, for a load balancer in front of them. All end together when one ends, so that Slurm can requeue the job.
#SBATCH --job-name=dlstep-serve
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
set -euo pipefail

[ $# -ge 1 ] || { echo "usage: sbatch [options] $0 MODEL [options of dlstep serve]" >&2; exit 2; }
port=${PORT:-8000}
addresses=${ADDRESSES:-dlstep-$SLURM_JOB_ID.txt}
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s|.*|http://&:$port|" > "$addresses"
replicas=${SLURM_GPUS_ON_NODE:-1}

# SIGTERM comes two minutes before the end of the job: the servers drain.
stopping=
step=
told=
stop() {
    stopping=1
    if [ -n "$step" ] && [ -z "$told" ]; then  # once: a second SIGTERM ends a server at once
        told=1
        kill -TERM "$step" 2>/dev/null || true
    fi
}
trap stop TERM INT
srun --kill-on-bad-exit=1 --wait=60 \
    dlstep serve "$@" --host "${HOST:-0.0.0.0}" --port "$port" --replicas "$replicas" --log_requests false &
step=$!
[ -z "$stopping" ] || stop  # the signal came before there was a step
code=0
wait "$step" || code=$?
if [ -n "$stopping" ]; then  # the signal ended the first wait
    wait
    code=0
fi
rm -f "$addresses"
exit "$code"
