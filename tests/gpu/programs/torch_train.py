"""ResNet-50 on one batch of random images, in mixed precision: `torch_train BATCH STEPS`."""

import sys
import time

import torch
import torchvision

from tests.gpu.programs.steps import step

WARM_UP_STEPS = 15
WINDOW_STEPS = 10


class Trainer:
    """The model, its one batch, and a training step."""

    def __init__(self, batch: int) -> None:
        torch.manual_seed(1)
        torch.backends.cudnn.benchmark = True
        layout = torch.channels_last
        self.model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=layout)
        self.images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=layout)
        self.labels = torch.randint(0, 1000, (batch,), device="cuda")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def train(self) -> torch.Tensor:
        """Do one step, and return its loss without waiting for it."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    """Report the end of the warm-up, and then the rate in images per second, in total and in windows of ten steps."""
    batch, steps = int(sys.argv[1]), int(sys.argv[2])
    trainer = Trainer(batch)
    first = float(trainer.train())
    step("first", loss=first, allocated_bytes=torch.cuda.max_memory_allocated())
    for _ in range(WARM_UP_STEPS - 1):
        trainer.train()
    torch.cuda.synchronize()
    step("warm")
    windows, last = [], torch.tensor(0.0)
    begin = before = time.perf_counter()
    for number in range(1, steps + 1):
        last = trainer.train()
        if number % WINDOW_STEPS == 0:
            torch.cuda.synchronize()
            now = time.perf_counter()
            windows.append(round(WINDOW_STEPS * batch / (now - before), 1))
            before = now
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    step(
        "trained", images_per_second=round(steps * batch / seconds, 1), windows=windows, loss=float(last),
        free_bytes=torch.cuda.mem_get_info()[0], total_bytes=torch.cuda.mem_get_info()[1],
        reserved_bytes=torch.cuda.memory_reserved(), began_at=time.time() - seconds, seconds=round(seconds, 3),
    )  # fmt: skip


if __name__ == "__main__":
    main()
