#!/bin/sh
# Stands in for the ResNet-50 benchmark of TR-4858: prints its arguments and steps, computes nothing.
trap 'echo stopped; exit 143' TERM
echo "ResNet-50 benchmark, arguments: $*"
step=0
while :; do
    echo "step $step: images/sec on device ${NVIDIA_VISIBLE_DEVICES:-none}: n/a (no framework in this image)"
    step=$((step + 10))
    sleep "${STEP_SECONDS:-5}" &
    wait $!
done
