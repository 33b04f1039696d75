"""
Which words of a sentence act together
======================================

A small transformer reads reviews such as *film was not good but plot looked really fresh*, and tells how kind they are.
A negation turns the adjective after it around, and leaves the other adjective alone. Does the network read it so? We
ask which positions of the sentence act together, and see two pairs among 36.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import geh_explain as geh

# %%
# Nine positions with two words each make 512 sentences. Either half of a review is worth 1 or -1, and *not* and
# *hardly* change its sign.

slots = ["film/book", "was/is", "not/very", "bad/good", "and/but", "cast/plot", "looked/seemed"]
slots += ["hardly/really", "stale/fresh"]
choices = torch.cartesian_prod(*[torch.arange(2)] * 9)
sentences = 2 * torch.arange(9) + choices  # numbers of words
signs = 2.0 * choices - 1
kindness = signs[:, 2] * signs[:, 3] + signs[:, 7] * signs[:, 8]


class Reader(nn.Module):
    """A transformer whose embedding has one number per word."""

    def __init__(self, width=16):
        super().__init__()
        self.embedding = nn.Embedding(18, 1)
        self.widen = nn.Linear(1, width)
        self.position = nn.Parameter(torch.randn(9, width))
        block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1)

    def forward(self, words):
        hidden = self.encoder(self.widen(self.embedding(words)) + self.position)
        return self.head(hidden.mean(dim=1))[:, 0]


torch.manual_seed(0)
net = Reader()
shuffled = torch.randperm(512)
train, test = shuffled[:384], shuffled[384:]
optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100)
for _ in range(100):
    for batch in train[torch.randperm(384)].split(64):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(sentences[batch]), kindness[batch]).backward()
        optimiser.step()
    schedule.step()
net.eval()
with torch.no_grad():
    right = (net(sentences[test]).round() == kindness[test]).float().mean()
print(f"right for {right:.0%} of the sentences it has not seen")

# %%
# Units are the positions of the sentence, at the output of the embedding. Between two words there is nothing, so the
# slope at a word says little. Differences let each word jump to the other one of its position instead: what do *not*
# and *good* do together, beyond what each does alone? The dropout of the network serves as posterior.

explainer = geh.GEHExplainer(
    net, layer="embedding", units=geh.units.Tokens(), engine=geh.engines.Difference(discrete=list(range(9)))
)
result = explainer.explain(sentences[test], groups=1, draws=30, names=slots, scale="std", progress=False)
print(result)

# %%
# Each negation acts together with its own adjective. In units of the words' standard deviations the true strength of
# both pairs is 1, and that of all others 0. Some of those are significant as well, but very small: the strongest pair
# that should not be there is some twenty times weaker than the two that should.
#
# ``Tokens`` moves all numbers of a token by the same amount. With one number per word that is a change of word. In a
# wide embedding it is one direction among many, and need not mean anything.

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1, 1.1), layout="constrained")
result.plot.heatmap(ax=left)
result.plot.intervals(pairs=8, ax=right)
figure.savefig("transformer_tokens.png", dpi=100)
