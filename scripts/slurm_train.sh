#!/usr/bin/env bash
# Trains on several machines under SLURM:
#   sbatch --nodes 2 --gpus-per-node 4 --ntasks-per-node 4 scripts/slurm_train.sh --config configs/coco.yaml ...
# One task per GPU, as Lightning expects; it finds the machines and ranks in SLURM's environment.
# The options after the script are those of `captioning train`. Run it from the checkout, on a file
# system that all machines share. A job that SLURM stops and queues again goes on where it was.
#SBATCH --job-name=captioning
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=slurm-%j.out
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?is set by sbatch; submit this script with it}"
source .venv/bin/activate

# --resume does nothing in a folder without a checkpoint, so it may stand here the first time too.
srun captioning train \
    --trainer.strategy ddp \
    --trainer.num_nodes "$SLURM_NNODES" \
    --trainer.devices "$SLURM_NTASKS_PER_NODE" \
    --resume "$@"
