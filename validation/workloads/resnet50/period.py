"""Makes the command line of tf_cnn_benchmarks that NetApp's run.py executed for the paper, for a comparison.

It needs a container with TensorFlow 1 (the last is `nvcr.io/nvidia/tensorflow:23.03-tf1-py3`). Only NetApp's copy of
tf_cnn_benchmarks has `--num_mounts` and `--mount_prefix`. For one mount they are left out, so that the public program
can run the line.
"""

from validation.workloads.resnet50.arguments import Options


def period_command(options: Options) -> list[str]:
    """Return the words of the command line."""
    command = [
        "mpirun", "-np", str(options.num_devices), "-bind-to", "none", "-map-by", "slot",
        "python", "tf_cnn_benchmarks.py", "--model=resnet50", f"--batch_size={options.batch_size}",
        f"--device={options.device}", "--force_gpu_compatible=True", "--num_intra_threads=1",
        "--num_inter_threads=48", "--variable_update=horovod", f"--horovod_device={options.device}",
        "--batch_group_size=20", f"--num_batches={options.num_batches}", "--nodistortions", "--num_gpus=1",
        "--data_format=NCHW", f"--use_fp16={options.precision == 'mixed_float16'}", "--use_tf_layers=False",
        "--data_name=imagenet",
    ]  # fmt: skip
    if options.dataset_dir is None:
        return command
    command += [
        "--use_datasets=True",
        f"--data_dir={options.dataset_dir}",
        "--datasets_parallel_interleave_cycle_length=10",
        "--datasets_sloppy_parallel_interleave=False",
    ]
    if options.num_mounts > 1:
        command += [f"--num_mounts={options.num_mounts}", f"--mount_prefix={options.mount_prefix}"]
    return [
        *command,
        "--datasets_prefetch_buffer_size=2000",
        "--datasets_use_prefetch=True",
        "--datasets_num_private_threads=4",
    ]
