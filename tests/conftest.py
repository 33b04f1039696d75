"""One thread: small tensors gain nothing from more, and lose much where others use the machine too."""

import torch

torch.set_num_threads(1)
