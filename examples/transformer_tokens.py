"""
Words of a sentence
===================

A small transformer predicts the sentiment of reviews such as *film was not good but plot looked really fresh*. A
negation changes the sign of the adjective after it, and does not affect the other adjective. This example ranks the
pairs of positions in the sentence; two of 36 pairs interact.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import geh_explain as geh

# %%
# Training
# --------
#
# Nine positions with two words each give 512 sentences. Each half of a review contributes 1 or -1 to its sentiment; the
# words *not* and *hardly* change the sign.

slots = ["film/book", "was/is", "not/very", "bad/good", "and/but", "cast/plot", "looked/seemed"]
slots += ["hardly/really", "stale/fresh"]
choices = torch.cartesian_prod(*[torch.arange(2)] * 9)
sentences = 2 * torch.arange(9) + choices  # indices of words
signs = 2.0 * choices - 1
sentiment = signs[:, 2] * signs[:, 3] + signs[:, 7] * signs[:, 8]


class SentimentModel(nn.Module):
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
net = SentimentModel()
shuffled = torch.randperm(512)
train, test = shuffled[:384], shuffled[384:]
optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100)
for _ in range(100):
    for batch in train[torch.randperm(384)].split(64):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(sentences[batch]), sentiment[batch]).backward()
        optimiser.step()
    schedule.step()
net.eval()
with torch.no_grad():
    correct = (net(sentences[test]).round() == sentiment[test]).float().mean()
print(f"accuracy on test sentences: {correct:.0%}")

# %%
# Scores
# ------
#
# The units are the positions of the sentence, at the output of the embedding. Values between two words do not occur, so
# that derivatives at a word mean little. ``Difference(discrete=...)`` replaces each word by the other word of its
# position, and measures the joint effect of two replacements minus the sum of the single effects. The posterior is the
# dropout of the network.

explainer = geh.GEHExplainer(
    net, layer="embedding", units=geh.units.Tokens(), engine=geh.engines.Difference(discrete=list(range(9)))
)
result = explainer.explain(sentences[test], groups=1, draws=30, names=slots, scale="std", progress=False)
print(result)

# %%
# Each negation interacts with the adjective after it. In units of the words' standard deviations the true score is 1
# for these two pairs and 0 for all others. The third largest score is about twenty times smaller. A few of the other
# pairs have an interval that excludes 0.
#
# ``Tokens`` shifts all numbers of a token by the same amount. With one number per word this is a change of word. In a
# wider embedding it is one direction of many, and may be meaningless.

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), width_ratios=(1, 1.1), layout="constrained")
result.plot.heatmap(ax=left)
result.plot.intervals(pairs=8, ax=right)
figure.savefig("transformer_tokens.png", dpi=100)
