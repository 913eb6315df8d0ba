#!/bin/sh
# Stands in for NVIDIA's samples vectorAdd and deviceQuery: no CUDA, the same last line. Says which GPUs the container has,
# and fails where it has none. The DRA example driver gives a container no device file, but names its devices.
gpus=$(ls /dev | grep -x 'nvidia[0-9][0-9]*' || env | sed -n 's/^GPU_DEVICE_[0-9]*=//p')
if [ -z "$gpus" ]; then
    echo 'no CUDA-capable device is detected'
    exit 1
fi
echo "$gpus"
if [ "$1" = 'Result = PASS' ]; then
    echo " Detected $(echo "$gpus" | wc -l) CUDA Capable device(s)"
fi
echo "$1"
