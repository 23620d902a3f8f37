"""A diffusion UNet (diffusers), sampling with guidance in the first steps only.

The timestep is passed as a Python number: pass the scheduler's tensor instead, and one compile is
gone. The batch is half as large once guidance ends, which is a compile in the middle of sampling;
a warm-up call of that size moves it to the start.
"""

import torch
from diffusers import DDIMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    block_out_channels=(16, 32),
    layers_per_block=1,
    norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    num_class_embeds=11,
).eval()
compiled = torch.compile(unet, backend="eager")
scheduler = DDIMScheduler(num_train_timesteps=1000)
scheduler.set_timesteps(12)

image, label, none = torch.randn(2, 3, 16, 16), torch.tensor([3, 7]), torch.tensor([10, 10])
with torch.no_grad():
    for step, time in enumerate(scheduler.timesteps.tolist()):
        if step < 8:
            noise = compiled(image.repeat(2, 1, 1, 1), time, torch.cat([label, none])).sample
            guided, free = noise.chunk(2)
            noise = free + 3 * (guided - free)
        else:
            noise = compiled(image, time, label).sample
        image = scheduler.step(noise, time, image).prev_sample
print(f"image of {image.std().item():.2f}")
