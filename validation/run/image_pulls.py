"""Pulls every image of the run on every node with GPUs, before the first step is timed."""

from collections.abc import Sequence

from orchestrator.progress import Reporter
from validation.errors import TargetError
from validation.judge.events import ImagePulled
from validation.scenario.images import ImageMap
from validation.targets.base import Target
from validation.targets.recorder import Recorder


async def pull_before_the_clock(
    target: Target, recorder: Recorder, images: ImageMap, names: Sequence[str], progress: Reporter
) -> None:
    """Pull the images with these names in scenarios on each node with GPUs, and record each pull.

    Raises TargetError if a pull failed.
    """
    state = recorder.state
    nodes = [node for node, gpus in sorted(state.nodes.items()) if gpus and node not in state.cordoned]
    at_site = {images.image(name): name for name in names}
    if not target.pulls_images or not at_site or not nodes:
        return
    progress(f"pulling {len(at_site)} images on {len(nodes)} nodes")
    pulls = await target.pull(nodes, list(at_site))
    for pull in pulls:
        name = at_site[pull.image]
        recorder.record(
            ImagePulled(
                recorder.now_ms(),
                pull.node,
                name,
                pull.image,
                pull.digest,
                pull.took_ms,
                pull.message,
                pull.problem,
            )
        )
    failed = [pull for pull in pulls if pull.problem]
    if failed:
        more = f"; so are {len(failed) - 1} more" if len(failed) > 1 else ""
        first = failed[0]
        raise TargetError(f"image {first.image} cannot be pulled on {first.node}: {first.problem}{more}")
