#!/bin/bash
# Start a server on each node of a Slurm job: sbatch --nodes 2 --gpus-per-node 8 deploy/slurm/serve.sh MODEL [options of dlstep serve]
#
# Each server runs an engine on each GPU of its node. The script writes the addresses of the servers to ADDRESSES (default:
# dlstep-JOBID.txt), one per line, for a load balancer. When one server ends, all end, so that Slurm can requeue the job.
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

# Slurm sends SIGTERM two minutes before the end of the job; the servers then drain.
stopping=
step=
terminated=
stop() {
    stopping=1
    if [ -n "$step" ] && [ -z "$terminated" ]; then  # only once: at a second SIGTERM, a server exits without draining
        terminated=1
        kill -TERM "$step" 2>/dev/null || true
    fi
}
trap stop TERM INT
srun --kill-on-bad-exit=1 --wait=60 \
    dlstep serve "$@" --host "${HOST:-0.0.0.0}" --port "$port" --replicas "$replicas" --log_requests false &
step=$!
[ -z "$stopping" ] || stop  # the signal came before the step started
code=0
wait "$step" || code=$?
if [ -n "$stopping" ]; then  # the signal interrupted the first wait
    wait
    code=0
fi
rm -f "$addresses"
exit "$code"
