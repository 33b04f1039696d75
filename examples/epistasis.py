"""
Pairs of genetic variants among 200 million
===========================================

Some pairs of variants (SNPs) act on a trait only together: neither of them has an effect by itself, so that no
screening of single variants finds them. This example simulates such a trait, writes a kernel machine as a network,
searches all pairs of its inputs with ``explainer.search``, and tests those that it finds on people who were held out.
It takes 2,000 SNPs; ``python epistasis.py --full`` takes 20,000, which have the 200 million pairs of the title.
"""

import argparse

import matplotlib.pyplot as plt
import torch
from torch import nn

import geh_explain as geh

parser = argparse.ArgumentParser()
parser.add_argument("--full", action="store_true", help="20,000 SNPs and 5,000 people instead of 2,000 and 1,500")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
n_snps, n_people, share = (20_000, 5_000, 0.025) if options.full else (2_000, 1_500, 0.07)
BLOCK, N_PAIRS, N_CANDIDATES = 20, 5, 20
generator = torch.Generator().manual_seed(options.seed)

# %%
# Genotypes
# ---------
#
# A genotype is the number of copies of the rarer allele, 0, 1 or 2, whose frequency is .1 to .5. Neighbours within a
# block of 20 SNPs are inherited together: along each of the two chromosomes a Gaussian variable with correlation .9
# between neighbours lies below or above a threshold. Genotypes are standardised as the frequencies imply.


def simulate_genotypes() -> torch.Tensor:
    """Return standardised genotypes (people, SNPs)."""
    frequencies = 0.1 + 0.4 * torch.rand(n_snps // BLOCK, BLOCK, generator=generator)
    thresholds = torch.special.ndtri(frequencies)
    genotypes = torch.zeros(n_people, n_snps // BLOCK, BLOCK)
    for _ in range(2):
        latent = torch.randn(n_people, n_snps // BLOCK, generator=generator)
        for place in range(BLOCK):
            genotypes[:, :, place] += latent < thresholds[:, place]
            innovation = torch.randn(latent.shape, generator=generator)
            latent = 0.9 * latent + (1 - 0.9**2) ** 0.5 * innovation
    genotypes -= 2 * frequencies
    genotypes /= (2 * frequencies * (1 - frequencies)).sqrt()
    return genotypes.flatten(1)


# %%
# The trait
# ---------
#
# Five pairs of SNPs from ten different blocks act by the product of their centred genotypes, which has no main effects.
# Each explains 7 % of the variance (with ``--full`` 2.5 %). Several hundred small additive effects, of any SNPs,
# explain 30 %. The rest is noise. Three in five people are used for training.

X = simulate_genotypes()
blocks = torch.randperm(n_snps // BLOCK, generator=generator)[: 2 * N_PAIRS]
true_pairs = (blocks * BLOCK + torch.randint(BLOCK, blocks.shape, generator=generator)).reshape(N_PAIRS, 2)
signs = torch.randint(2, (N_PAIRS,), generator=generator) * 2.0 - 1
epistatic = (X[:, true_pairs].prod(2) * signs).sum(1) * share**0.5

small = torch.randperm(n_snps, generator=generator)[: 500 if options.full else 300]
additive = X[:, small] @ torch.randn(len(small), generator=generator)
additive *= 0.3**0.5 / additive.std()
y = epistatic + additive + (0.7 - N_PAIRS * share) ** 0.5 * torch.randn(n_people, generator=generator)

n_train = n_people * 3 // 5
X_train, X_held, y_train, y_held = X[:n_train], X[n_train:], y[:n_train], y[n_train:]

# %%
# A network of all pairs
# ----------------------
#
# The network is f(x) = sum over the training people n of a_n (s u_n + t u_n^2), where u_n = w_n . x / D compares a
# person with the genotypes w_n of person n. It is the prediction of a mixed model with additive and pairwise effects of
# all SNPs, as in statistical genetics. Its second derivatives, W' diag(a) W up to a factor, are the correlations of all
# products of SNPs with what the mixed model leaves of the trait. The share of additive effects is chosen by the
# likelihood. (A perceptron that was trained by gradient descent with this many people learned additive effects only.)


class KernelMachine(nn.Module):
    """A layer with one unit per training person, a curved activation, and a linear read-out."""

    def __init__(self, people: torch.Tensor, additive: float, pairs: float, weights: torch.Tensor) -> None:
        super().__init__()
        self.compare = nn.Linear(*people.T.shape, bias=False)
        self.compare.weight = nn.Parameter(people, requires_grad=False)
        self.read_out = nn.Linear(len(people), 1, bias=False)
        self.read_out.weight = nn.Parameter(weights[None], requires_grad=False)
        self.additive, self.pairs = additive, pairs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.compare(x) / x.shape[1]
        return self.read_out(self.additive * u + self.pairs * u**2)


def log_likelihood(factor: torch.Tensor, y: torch.Tensor) -> float:
    """Return the log likelihood of y, up to a constant, given the Cholesky factor of its covariance."""
    errors = torch.linalg.solve_triangular(factor, (y - y.mean())[:, None], upper=False)
    return float(-len(y) / 2 * errors.square().mean().log() - factor.diagonal().log().sum())


similarity = X_train @ X_train.T / n_snps
PAIRS = 0.2  # share of the variance; the kernel of pairs is so close to that of noise that it hardly matters
factors = {}  # of the covariance of the trait, by the share of additive effects
for additive_share in (0.05, 0.15, 0.3, 0.45, 0.6):
    kernel = additive_share * similarity + PAIRS * similarity**2
    factors[additive_share] = torch.linalg.cholesky(kernel + (1 - PAIRS - additive_share) * torch.eye(n_train))
additive_share, factor = max(factors.items(), key=lambda entry: log_likelihood(entry[1], y_train))
del factors, kernel, similarity


def generalised_least_squares(columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return coefficients of some columns, and the residuals of the trait times the inverse of its covariance."""
    weighted = torch.cholesky_solve(columns, factor)
    coefficients = torch.linalg.solve(columns.T @ weighted, weighted.T @ y_train)
    return coefficients, torch.cholesky_solve((y_train - columns @ coefficients)[:, None], factor)[:, 0]


ones = torch.ones(n_train, 1)
mean, weights = generalised_least_squares(ones)
network = KernelMachine(X_train, additive_share, PAIRS, weights)
held_error = (y_held - mean - network(X_held)[:, 0]).var() / y_held.var()
print(f"additive share {additive_share:.0%}; R2 of the network on held-out people {1 - held_error:.3f}")

# %%
# The search
# ----------
#
# Second derivatives of this network are the same at all people, so that some people and one group are enough. A true
# pair appears with many pairs of neighbours. As in association studies, the best pair of each pair of blocks is kept.

explainer = geh.GEHExplainer(network, posterior=geh.posterior.PointEstimate())
searched = explainer.search(X_train[:10], top=3000, groups=1, progress=False)
print(searched.settings["row_search"])

table = searched.table()
table["first"], table["second"] = (table[end].str[1:].astype(int) for end in ("unit_i", "unit_j"))
table["blocks"] = list(zip(table["first"] // BLOCK, table["second"] // BLOCK, strict=True))
between = table[table["first"] // BLOCK != table["second"] // BLOCK]
candidates = between.drop_duplicates("blocks").head(N_CANDIDATES)

# %%
# The test
# --------
#
# The few SNPs of these candidates become the units of a small model, the products of the candidate pairs. They are
# fitted to the training people beside the polygenic effects. The test then uses people that neither the search nor the
# fit has seen. The additive effects of all SNPs, as predicted from the training people, are subtracted from their
# trait.

pairs = torch.tensor(candidates[["first", "second"]].values)
snps, places = pairs.unique(return_inverse=True)
slopes, weights = generalised_least_squares(torch.cat([X_train[:, pairs].prod(2), ones], dim=1))
polygenic = additive_share * X_held @ (X_train.T @ weights) / n_snps


def model(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of the candidate pairs' effects."""
    return x[:, places].prod(2) @ slopes[:-1]


names = [f"SNP {snp}" for snp in snps.tolist()]
tested = geh.GEHExplainer(model, posterior=geh.posterior.PointEstimate()).explain(
    X_train[:, snps],
    pairs=[(names[i], names[j]) for i, j in places.tolist()],
    names=names,
    groups=1,
    evidence=(X_held[:, snps], y_held - slopes[-1] - polygenic),
    progress=False,
)

# %%
# A pair counts as true if its SNPs lie in the blocks of a true pair.

evidence = tested.table(fdr=0.1).sort_values("p_value")
ends = [evidence[end].str[4:].astype(int) // BLOCK for end in ("unit_i", "unit_j")]
true_blocks = {tuple(sorted(pair)) for pair in (true_pairs // BLOCK).tolist()}
evidence["true"] = [pair in true_blocks for pair in zip(*ends, strict=True)]
print(evidence[["unit_i", "unit_j", "slope", "p_value", "significant", "true"]].head(10).to_string(index=False))
found = evidence[evidence["significant"]]
print(f"found {found['true'].sum()} of {N_PAIRS} true pairs, and {(~found['true']).sum()} false ones, at FDR 0.1")

# %%
# Both pictures show the true pairs in red.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
axes[0].scatter(between["first"], between["second"], s=400 * (between["mean"] / between["mean"].max()) ** 4, alpha=0.4)
axes[0].scatter(*true_pairs.sort(1).values.T, s=150, facecolors="none", edgecolors="C3", label="true pairs")
axes[0].set(title="Pairs found by the search", xlabel="first SNP", ylabel="second SNP")
axes[0].legend()
axes[1].errorbar(range(len(evidence)), evidence["slope"], 2 * evidence["slope_se"], fmt="none", color="0.6")
axes[1].scatter(range(len(evidence)), evidence["slope"], c=["C3" if true else "C0" for true in evidence["true"]])
axes[1].set(title="Slopes on held-out people (red: true pairs)", xlabel="rank by p-value", ylabel="slope")
axes[1].xaxis.get_major_locator().set_params(integer=True)
figure.savefig("epistasis.png", dpi=100)
