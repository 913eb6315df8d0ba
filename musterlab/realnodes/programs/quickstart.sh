#!/bin/sh
# Stands in for the sample training job of TR-4858: the same lines in the log, no computation.
# EPOCHS and STEP_SECONDS shorten it; the default is a job that runs until it is deleted.
trap 'echo stopped; exit 143' TERM
gpus=${RUNAI_NUM_OF_GPUS:-0}
echo "Running on $gpus GPU(s)"
echo "NVIDIA_VISIBLE_DEVICES=${NVIDIA_VISIBLE_DEVICES:-}"
epochs=${EPOCHS:-100000}
epoch=1
while [ "$epoch" -le "$epochs" ]; do
    echo "Epoch $epoch/$epochs"
    step=1
    while [ "$step" -le 5 ]; do
        sleep "${STEP_SECONDS:-1}" &
        wait $!
        echo ">> Step $step took ${STEP_SECONDS:-1} sec"
        step=$((step + 1))
    done
    awk -v epoch="$epoch" 'BEGIN { printf "loss: %.4f - acc: %.4f\n", 2.3 / epoch, 1 - 0.9 / epoch }'
    epoch=$((epoch + 1))
done
