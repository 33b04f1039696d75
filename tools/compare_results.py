# ruff: noqa
"""Run a fixed set of explanations and store every number, to compare two versions of the package bit by bit.

PYTHONPATH=<checkout> python tools/compare_results.py write out.npz
python tools/compare_results.py compare old.npz new.npz
"""

import sys
import tempfile
import warnings

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


def mlp(sizes, act=nn.Tanh, p=0.0, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), act(), *([nn.Dropout(p)] if p else [])]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1)).to(dtype)


def cnn(act=nn.ReLU, seed=1, p=0.2):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        act(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        act(),
        nn.Dropout2d(p),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        act(),
        nn.Dropout(p),
        nn.Linear(16, 4),
    )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.embed = nn.Linear(5, 16)
        self.block = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.block(self.embed(x)).mean(1))


def data(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def runs(geh):
    E = geh.engines if hasattr(geh, "engines") else geh.engines
    P, U = geh.posterior, geh.units
    G = geh.GEHExplainer
    x8, x8d = data(300, 8), data(300, 8, dtype=torch.double)
    tanh, relu, drop = mlp((8, 30, 30)), mlp((8, 30, 30), nn.ReLU), mlp((8, 30, 30), nn.GELU, 0.1)
    img, tgt = data(40, 1, 12, 12, seed=5), torch.arange(40) % 4
    seq = data(30, 6, 5, seed=6)
    quiet = {"progress": False}
    yield "tanh point", lambda: G(tanh, posterior=P.PointEstimate()).explain(x8, **quiet)
    yield (
        "tanh point double exact",
        lambda: G(tanh.double(), engine="exact", posterior=P.PointEstimate()).explain(x8d, groups=4, **quiet),
    )
    tanh_f = mlp((8, 30, 30))
    yield "relu auto std", lambda: G(relu, posterior=P.PointEstimate()).explain(x8, scale="std", **quiet)
    yield "relu beta", lambda: G(relu, smooth=8.0, posterior=P.PointEstimate()).explain(x8, groups=5, **quiet)
    yield "drop auto", lambda: G(drop).explain(x8, draws=25, **quiet)
    yield "drop seed", lambda: G(drop).explain(x8, draws=5, groups=3, seed=7, batch_size=64, **quiet)
    yield "drop exact", lambda: G(drop, engine="exact").explain(x8, draws=4, groups=3, **quiet)
    yield "difference", lambda: G(drop, engine="difference").explain(x8[:100], draws=3, groups=3, scale="std", **quiet)
    xb = x8.clone()
    xb[:, 2] = (xb[:, 2] > 0).float()
    yield (
        "difference binary",
        lambda: G(relu, engine=E.Difference(step=0.3), posterior=P.PointEstimate()).explain(xb[:90], **quiet),
    )
    yield (
        "difference baseline",
        lambda: G(relu, engine=E.Difference(baseline="mean"), posterior=P.PointEstimate()).explain(
            xb[:90], groups=2, **quiet
        ),
    )
    yield (
        "stein",
        lambda: G(relu, engine=E.Stein(noise=0.3, samples=6), posterior=P.PointEstimate()).explain(
            x8, groups=3, **quiet
        ),
    )
    yield "stein drop", lambda: G(drop, engine="stein").explain(x8[:80], draws=3, groups=3, **quiet)
    yield (
        "black box",
        lambda: G(lambda x: (x[:, 0] > 0).float() * x[:, 1] + x[:, 2] * x[:, 3], posterior=P.PointEstimate()).explain(
            x8, **quiet
        ),
    )
    yield "hidden neurons", lambda: G(drop, layer="1").explain(x8, draws=6, scale="std", **quiet)
    yield "cnn channels", lambda: G(cnn(), layer="4").explain(img, tgt, draws=6, scale="std", **quiet)
    yield (
        "cnn probability",
        lambda: G(cnn(), layer="9", output="probability").explain(img, 2, draws=5, groups=2, **quiet),
    )
    yield (
        "cnn patches",
        lambda: G(cnn(), units=U.Patches(4), posterior=P.PointEstimate()).explain(img, 1, groups=2, **quiet),
    )
    yield (
        "cnn subset",
        lambda: G(cnn(), layer="5", units=U.Subset([1, 3, 5])).explain(img, tgt, draws=4, groups=2, **quiet),
    )
    yield (
        "attention tokens",
        lambda: G(Attention(), layer="embed", units=U.Tokens()).explain(seq, 0, draws=3, groups=2, **quiet),
    )
    yield (
        "attention heads",
        lambda: G(Attention(), layer="block", units=U.Heads(4), output="probability").explain(
            seq, 1, draws=3, groups=2, **quiet
        ),
    )
    yield (
        "feature groups",
        lambda: G(
            tanh_f, units=U.FeatureGroups({"a": [0, 1], "b": [2, 5]}, rest=True), posterior=P.PointEstimate()
        ).explain(x8, groups=2, **quiet),
    )
    nets = [mlp((8, 20), nn.ReLU, seed=s) for s in range(4)]
    yield "ensemble", lambda: G(nets[0], posterior=P.Ensemble(nets)).explain(x8, scale="std", **quiet)
    base = mlp((8, 20))
    gen = torch.Generator().manual_seed(4)
    samples = [
        {k: v + 0.05 * torch.randn(v.shape, generator=gen) for k, v in base.state_dict().items()} for _ in range(8)
    ]
    yield "weights", lambda: G(base, posterior=P.WeightSamples(samples)).explain(x8, **quiet)
    swag = getattr(P, "SWAG", None) or P.WeightSamples.from_swag
    yield "swag", lambda: G(base, posterior=swag(samples, rank=4)).explain(x8, draws=5, groups=2, **quiet)
    torch.manual_seed(8)
    field = nn.Sequential(geh.bnn.MeanField(nn.Linear(8, 12)), nn.Tanh(), nn.Linear(12, 1))
    yield "mean field", lambda: G(field).explain(x8, draws=6, groups=2, **quiet)

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = base

        def forward(self, x):
            return self.base(x * (1 + 0.1 * torch.randn(x.shape[1])))

    yield "stochastic", lambda: G(Noisy(), posterior=P.Stochastic()).explain(x8, draws=4, scale="std", **quiet)
    wide = mlp((300, 20), nn.Softplus, seed=2)
    yield "narrow", lambda: G(wide, posterior=P.PointEstimate()).explain(data(60, 300), groups=3, **quiet)
    yield (
        "eah points",
        lambda: G(wide, posterior=P.PointEstimate()).explain(data(60, 300), groups=3, eah_points=7, **quiet),
    )
    yield (
        "memory",
        lambda: G(
            mlp((60, 20), nn.GELU, 0.1),
        ).explain(data(50, 60), draws=30, memory=0.002, **quiet),
    )
    yield (
        "clusterer",
        lambda: G(tanh_f, posterior=P.PointEstimate()).explain(
            x8, groups=__import__("sklearn.cluster", fromlist=["KMeans"]).KMeans(3, n_init=2, random_state=0), **quiet
        ),
    )
    yield (
        "labels",
        lambda: G(tanh_f, posterior=P.PointEstimate()).explain(
            x8, groups=["a" if v > 0 else "b" for v in x8[:, 0]], scale=[1, 2, 1, 1, 1, 1, 1, 0.5], **quiet
        ),
    )
    ds = torch.utils.data.TensorDataset(x8, torch.zeros(300))
    yield (
        "loader",
        lambda: G(drop).explain(
            torch.utils.data.DataLoader(ds, batch_size=37, shuffle=True), draws=3, groups=4, **quiet
        ),
    )
    yield (
        "many points",
        lambda: G(relu, layer="0", posterior=P.PointEstimate()).explain(
            data(21000, 8, seed=9), groups="auto", scale="std", **quiet
        ),
    )

    def resumed():
        with tempfile.TemporaryDirectory() as folder:
            G(drop).explain(x8, draws=4, groups=3, checkpoint=folder, memory=1, **quiet)
            return G(drop).explain(x8, draws=9, groups=3, checkpoint=folder, memory=1, **quiet)

    yield "checkpoint", resumed


def extras(geh):
    P, U = geh.posterior, geh.units
    x8, drop = data(200, 8), mlp((8, 30, 30), nn.GELU, 0.1)
    explainer = geh.GEHExplainer(drop)
    result = explainer.explain(x8, draws=10, groups=3, progress=False)
    yield "choice", lambda: explainer.choose_groups(x8, max_groups=12, draws=4, progress=False).delta
    yield (
        "screen",
        lambda: np.concatenate([(s := explainer.screen(x8, keep=4, draws=3, progress=False)).indices, s.importance]),
    )
    yield (
        "check",
        lambda: np.stack([(c := explainer.check(result, data(60, 8, seed=3), progress=False)).predicted, c.observed]),
    )
    yield (
        "surface",
        lambda: (
            explainer.surface(x8, 0, 1, draws=3, progress=False).values
            if "pair" not in __import__("inspect").signature(explainer.surface).parameters
            else explainer.surface(x8, pair=(0, 1), draws=3, progress=False).values
        ),
    )
    y = (x8[:, 0] * x8[:, 1])[:, None]
    yield (
        "diagnose",
        lambda: np.concatenate(
            [
                (
                    d := (
                        explainer.diagnose(x8, y, draws=5, progress=False)
                        if "y" == explainer.diagnose.__code__.co_varnames[2]
                        else explainer.diagnose(x8, y=y, draws=5, progress=False)
                    )
                ).errors,
                d.covered,
            ]
        ),
    )
    yield "main", lambda: np.stack([result.main.mean, result.main.std, result.main.strength])
    yield "sign p", lambda: result.sign_p_values()
    yield "table", lambda: result.table()[["mean", "std", "low", "high", "p_value"]].to_numpy()

    def fitted():
        torch.manual_seed(0)
        net = geh.bnn.HybridNet(4, hidden=(16, 16))
        x = data(400, 4, seed=11)
        geh.bnn.fit(net, x, x[:, :1] * x[:, 1:2], epochs=6, progress=False)
        return geh.GEHExplainer(net).explain(x[:100], draws=5, groups=2, progress=False).geh.draws

    yield "bnn", fitted
    gallery_net = cnn()
    hidden = geh.GEHExplainer(gallery_net, layer="4")

    def gallery():
        img = data(40, 1, 12, 12, seed=5)
        found = hidden.interpret(
            hidden.explain(img, 1, draws=3, groups=2, progress=False),
            img,
            pairs=1,
            k=3,
            ascent={"steps": 12},
            progress=False,
        )
        return np.concatenate(
            [found.pairs[0].exemplars.scores.ravel(), np.asarray(found.pairs[0].ascent.inputs).ravel()]
        )

    yield "gallery", gallery

    def permuted():
        X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
        return geh.inference.permutation_test(
            geh.baselines.lasso, X, X[:, 0] * X[:, 1], permutations=9, progress=False
        ).null

    yield "permutation", permuted
    from geh_explain.captum import InputHessian, LayerHessian

    yield "captum input", lambda: InputHessian(drop).attribute(x8[:20]).numpy()
    yield "captum layer", lambda: LayerHessian(drop, drop[1]).attribute(x8[:20]).numpy()


def write(path):
    import geh_explain as geh

    print(geh.__file__)
    arrays = {}
    warnings.simplefilter("ignore")
    for name, run in runs(geh):
        try:
            result = run()
        except Exception as error:
            print("FAILED", name, repr(error)[:300])
            continue
        arrays[f"{name}/geh"] = result.geh.mean
        arrays[f"{name}/geh std"] = result.geh.std
        arrays[f"{name}/aeh"] = result.aeh.mean
        arrays[f"{name}/eah"] = result.eah.mean
        arrays[f"{name}/labels"] = result.labels
        if result.settings["draws_kept"]:
            arrays[f"{name}/signed"] = result.signed
            arrays[f"{name}/draws"] = result.geh.draws
        if result.has_main:
            arrays[f"{name}/main"] = result.main.mean
        arrays[f"{name}/meta"] = np.array(
            [result.settings["engine"], str(result.settings["smoothed"]), str(result.settings["group_count"])]
        )
        arrays[f"{name}/names"] = np.array(result.names)
    for name, run in extras(geh):
        try:
            arrays[f"extra/{name}"] = np.asarray(run())
        except Exception as error:
            print("FAILED extra", name, repr(error)[:300])
    np.savez(path, **arrays)
    print(len(arrays), "arrays")


def compare(old, new):
    a, b = np.load(old), np.load(new)
    different = [k for k in a.files if k not in b.files or a[k].shape != b[k].shape or a[k].tobytes() != b[k].tobytes()]
    extra = [k for k in b.files if k not in a.files]
    for key in different:
        same = key in b.files and a[key].shape == b[key].shape and a[key].dtype.kind == "f"
        print(
            "DIFFERENT",
            key,
            np.nanmax(np.abs(a[key] - b[key]))
            if same
            else (
                a[key] if a[key].dtype.kind == "U" else "missing or other shape",
                b[key] if key in b.files and a[key].dtype.kind == "U" else "",
            ),
        )
    print(f"{len(a.files) - len(different)} of {len(a.files)} arrays are bit-identical; only in new: {extra}")
    return bool(different)


if __name__ == "__main__":
    sys.exit(write(sys.argv[2]) if sys.argv[1] == "write" else compare(*sys.argv[2:4]))
