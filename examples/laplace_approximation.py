"""
A Laplace approximation
=======================

A network without dropout has no draws of its own. The laplace-torch library fits a Gaussian around its trained weights
afterwards, and geh_explain draws from it: how sure is a plain network of the pairs it has learned? One option decides
whether the draws are worth anything.
"""

import torch
from sklearn.datasets import make_friedman1
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import geh_explain as geh
from geh_explain.vision import torchvision

torchvision("transforms")  # laplace-torch imports it; this way also where its operators do not match torch's build
from laplace import Laplace  # noqa: E402

# %%
# A plain network, trained on Friedman's function, in which x0 and x1 alone act together.

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
# The Gaussian over all weights needs the noise of the targets, taken from the residuals, and a prior, which is chosen
# by the marginal likelihood.

noise = float((net(x_train) - y_train).detach().std())
la = Laplace(net, "regression", subset_of_weights="all", hessian_structure="full", sigma_noise=noise)
la.fit(DataLoader(TensorDataset(x_train, y_train), batch_size=100))
la.optimize_prior_precision(method="marglik", n_steps=20)

# %%
# By default the draws are those of the *linearised* network, for which the approximation is meant. They fit new data
# about as well as the network itself.

explainer = geh.GEHExplainer(net, posterior=geh.posterior.Laplace(la))
print(explainer.diagnose(x_test, y=y_test, progress=False))

# %%
# Drawn weights put into the network as they are (``linearised=False``) leave the data behind: in this example their
# error is many times the network's, and ``diagnose`` warns. So look there first, then at the scores.

result = explainer.explain(x_test, groups=2, progress=False)
print(result)

# %%
# The pair that is there is found; the sign rule agrees, and calls none of the fourteen others.

table = result.table(rule="sign")
print(table[table.significant].round(3))
print(result.regions("x0", "x1").round(1))

figure = result.plot.draws(pairs=6).figure
figure.savefig("laplace_approximation.png", dpi=100)
