"""One small set of op kinds, into which ATen's and ONNX's names both map.

Legality is written once, against kinds. A name not listed is `other`: assume nothing.
"""

LINEAR, MATMUL, CONV, ATTENTION = "linear", "matmul", "conv", "attention"
POOL, NORM, SOFTMAX, REDUCE = "pool", "norm", "softmax", "reduce"
ELEMENTWISE, RESHAPE, JOIN, LOOKUP = "elementwise", "reshape", "join", "lookup"
RECURRENT, CREATE, OTHER = "recurrent", "create", "other"

_ATEN = {
    LINEAR: "linear addmm",
    MATMUL: "matmul mm bmm baddbmm einsum",
    CONV: "conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d",
    ATTENTION: "scaled_dot_product_attention",
    POOL: "max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d adaptive_avg_pool1d"
    " avg_pool1d max_pool1d",
    NORM: "layer_norm native_layer_norm group_norm native_group_norm batch_norm instance_norm"
    " _native_batch_norm_legit_no_training rms_norm",
    SOFTMAX: "softmax _softmax log_softmax _log_softmax",
    REDUCE: "mean sum amax amin max min argmax prod var std cumsum any all linalg_vector_norm",
    ELEMENTWISE: "relu gelu silu tanh sigmoid hardtanh hardswish elu leaky_relu add sub mul div"
    " rsub neg exp log sqrt rsqrt pow abs clamp clamp_min clamp_max where masked_fill eq ne lt le"
    " gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not clone alias"
    " detach _to_copy erf sin cos reciprocal maximum minimum relu6 softplus contiguous",
    RESHAPE: "view reshape _unsafe_view permute transpose t unsqueeze squeeze expand select slice"
    " flatten unflatten split split_with_sizes chunk unbind repeat narrow",
    JOIN: "cat stack constant_pad_nd pad",
    LOOKUP: "embedding index index_select gather",
    RECURRENT: "lstm gru rnn_tanh rnn_relu lstm_ragged gru_ragged rnn_tanh_ragged rnn_relu_ragged",
    CREATE: "zeros ones full arange zeros_like ones_like full_like scalar_tensor new_zeros new_ones"
    " empty new_full",
}

_ONNX = {
    LINEAR: "Gemm",
    MATMUL: "MatMul Einsum",
    CONV: "Conv ConvTranspose",
    ATTENTION: "Attention MultiHeadAttention",
    POOL: "MaxPool AveragePool GlobalAveragePool GlobalMaxPool",
    NORM: "LayerNormalization BatchNormalization GroupNormalization InstanceNormalization"
    " RMSNormalization LRN",
    SOFTMAX: "Softmax LogSoftmax",
    REDUCE: "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2 ArgMax ArgMin CumSum",
    ELEMENTWISE: "Relu Gelu Tanh Sigmoid HardSigmoid HardSwish Elu LeakyRelu Add Sub Mul Div Neg"
    " Exp Log Sqrt Pow Abs Clip Where Equal Less LessOrEqual Greater GreaterOrEqual And Or Not"
    " Identity Cast Erf Sin Cos Reciprocal Max Min Softplus Swish Not Dropout",
    RESHAPE: "Reshape Transpose Unsqueeze Squeeze Expand Slice Flatten Split Tile Shape",
    JOIN: "Concat Pad",
    LOOKUP: "Gather GatherElements GatherND",
    RECURRENT: "LSTM GRU RNN",
    CREATE: "Constant ConstantOfShape Range",
}


def _inverted(table: dict[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in table.items() for name in names.split()}


ATEN_KINDS = _inverted(_ATEN)
ONNX_KINDS = _inverted(_ONNX)
