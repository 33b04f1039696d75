"""A predictor without torch: an ONNX file behind a lambda."""

import numpy as np
import pytest
import torch

import geh_explain as geh

onnx = pytest.importorskip("onnx", reason="onnx is not installed (pip install geh_explain[zoo])")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install geh_explain[zoo])")


def session(weight: np.ndarray) -> "onnxruntime.InferenceSession":
    """Return exp(w . x), whose interactions are w_i w_j times itself."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Exp", ["z"], ["y"])],
        "exponential",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("y", kind, ["n", 1])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def test_an_onnx_predictor_in_a_lambda_is_explained_by_differences():
    weight = np.array([[0.5], [-0.3], [0.2]], dtype=np.float32)
    predictor = session(weight)
    x = torch.rand(200, 3, generator=torch.Generator().manual_seed(0))
    with pytest.warns(geh.GEHWarning, match="mixed differences: the model's output has no gradients"):
        result = geh.GEHExplainer(
            lambda rows: predictor.run(None, {"x": rows.numpy()})[0], posterior=geh.posterior.PointEstimate()
        ).explain(x, groups=1, progress=False)
    assert result.settings["engine"] == "difference"
    truth = np.abs(weight @ weight.T) * torch.exp(x @ torch.from_numpy(weight)).mean().item()
    np.fill_diagonal(truth, 0)
    # Differences over a quarter of a standard deviation, in single precision.
    assert np.allclose(result.geh.mean, truth, rtol=0.02)
