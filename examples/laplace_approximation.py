"""
A Laplace approximation as posterior
====================================

A network without dropout has no draws of its own. laplace-torch fits a Gaussian around the trained weights, and
``geh.posterior.Laplace`` draws from it. By default the draws are those of the linearised network, which makes the
difference between a posterior that fits the data and one that does not.
"""

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.vision import torchvision

torchvision("transforms")  # imported by laplace-torch; this also works if its operators do not match the build of torch
from laplace import Laplace  # noqa: E402

# %%
# Training
# --------
#
# A network without dropout, trained on Friedman's function, in which only x0 and x1 interact.

inputs, values = make_friedman1(n_samples=2500, n_features=6, noise=1.0, random_state=0)
x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(values, dtype=torch.float32)[:, None]
x_train, y_train, x_test, y_test = x[:2000], y[:2000], x[2000:], y[2000:]

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 25), nn.Tanh(), nn.Linear(25, 25), nn.Tanh(), nn.Linear(25, 1))
optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100)
for _ in range(100):
    for batch in torch.randperm(2000).split(100):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x_train[batch]), y_train[batch]).backward()
        optimiser.step()
    schedule.step()
net.eval()

# %%
# Laplace approximation
# ---------------------
#
# The Gaussian over all weights depends on the noise of the targets, estimated from the residuals, and on the precision
# of the prior, which is chosen by the marginal likelihood.

noise = float((net(x_train) - y_train).detach().std())
la = Laplace(net, "regression", subset_of_weights="all", hessian_structure="full", sigma_noise=noise)
la.fit(DataLoader(TensorDataset(x_train, y_train), batch_size=100))
la.optimize_prior_precision(method="marglik", n_steps=20)

# %%
# ``diagnose`` compares the draws with held-out targets. The draws of the linearised network have about the error of the
# network itself.

explainer = geh.GEHExplainer(net, posterior=geh.posterior.Laplace(la))
print(explainer.diagnose(x_test, y=y_test, progress=False))

# %%
# With ``Laplace(la, linearised=False)`` the drawn weights are used in the network itself. In this example such draws
# have many times the error of the network, and ``diagnose`` warns. Check this before reading scores.
#
# Scores
# ------

result = explainer.explain(x_test, groups=2, progress=False)
print(result)

# %%
# The true pair has the largest score. It is stable: its sign holds over the draws. None of the other 14 pairs is.

table = result.table()
print(table[table.stable].round(3))
print(result.regions("x0", "x1").round(1))

figure = result.plot.draws(pairs=6).figure
figure.savefig("laplace_approximation.png", dpi=100)
