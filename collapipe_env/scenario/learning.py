"""What the learners train: data, trained proxy, optimisers and evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from collapipe_env.scenario.fields import SPEC_CONFIG, described, real, whole


@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class ProxySpec:
    """Sizes of the Transformer that is really trained in place of the priced one.

    The proxy keeps the priced architecture's block count and segments; only its widths, sequence length and
    vocabulary differ, so that a paper-size system can be studied on a laptop.

    Attributes:
        width: Model width d, a multiple of ``heads``.
        feedforward: Width of the feed-forward layer.
        heads: Attention heads.
        sequence_length: Tokens per sample; longer texts are cut, shorter ones padded.
        vocabulary: Rows of the embedding table; the tokeniser learns at most that many tokens.
    """

    width: Annotated[int, whole("model width d, a multiple of heads", 2, 8192)] = 32
    feedforward: Annotated[int, whole("feed-forward width d_ff", 1, 65536)] = 64
    heads: Annotated[int, whole("attention heads, a divisor of the width", 1, 256)] = 2
    sequence_length: Annotated[int, whole("tokens per sample", 2, 8192)] = 32
    vocabulary: Annotated[int, whole("rows of the embedding table", 64, 1_000_000)] = 2000

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ProxySpec:
        if self.width % self.heads:
            raise ValueError(
                f"width {self.width} is not a multiple of heads {self.heads}; change one of them"
            )
        return self


def _off_is_none(value: Any) -> Any:
    """Map YAML 1.2's plain ``off`` (a string there) and booleans to what they mean for a proxy."""
    if value is False or (isinstance(value, str) and value.strip().lower() in {"off", "none", "no", "false"}):
        return None
    if value is True or (isinstance(value, str) and value.strip().lower() in {"on", "yes", "true"}):
        return ProxySpec()
    return value


ColumnName = str | int


@dataclass(frozen=True, kw_only=True, config=SPEC_CONFIG)
class LearningSpec:
    """Data, proxy, optimisers and evaluation of the learners.

    Attributes:
        dataset: ``"embedded"`` (rated review sentences shipped with the package) or the path of a local TSV
            or CSV file, or of a folder with ``train``, ``dev`` and ``test`` files.
        text_column: Header name or 0-based index of the text column; None detects it.
        label_column: Header name or 0-based index of the label column; None detects it.
        partition: How the training data is spread over the clusters.
        dirichlet_alpha: Concentration of the Dirichlet label skew; small values skew more.
        proxy: Sizes of the trained proxy; None (``off`` in YAML) trains the priced architecture itself.
        optimizer: Optimiser of the clusters and of the server.
        learning_rate: Step size of the clusters' optimisers. The default suits the default proxy; with proxy
            off, 3e-5 for both rates trains a model of width 256, which 3e-4 throws off in its first round.
        server_learning_rate: Step size of the server's optimiser, which trains the task head.
        weight_decay: Decoupled weight decay of matrices (biases and norms are spared).
        token_dropout: Probability that a training token is replaced by the unknown token, against
            overfitting.
        weight_prediction: Under an asynchronous pipeline, let stages whose weights lag behind compute with
            weights predicted by the optimiser's own rule (XPipe); false for the stale weights themselves
            (PipeDream). Synchronous plans are not affected.
        samples_per_pass: Micro-batches in a row are computed in one pass as long as together they have at
            most that many samples: the same gradient in less time. 1 computes every one on its own.
        evaluate_every: Rounds between two evaluations.
        evaluation_samples: At most that many held-out samples are evaluated.
    """

    dataset: Annotated[
        str, Field(min_length=1, description='"embedded" or the path of a TSV/CSV file or folder')
    ] = "embedded"
    text_column: Annotated[
        ColumnName | None,
        described("header name or 0-based index of the text column; empty = detect"),
    ] = None
    label_column: Annotated[
        ColumnName | None,
        described("header name or 0-based index of the label column; empty = detect"),
    ] = None
    partition: Annotated[
        Literal["iid", "dirichlet"],
        described('spread of the data over clusters: "iid" or "dirichlet"'),
    ] = "iid"
    dirichlet_alpha: Annotated[float, real("concentration of the label skew", "1", gt=0, le=1e6)] = 0.5
    proxy: Annotated[
        ProxySpec | None,
        BeforeValidator(_off_is_none),
        described("sizes of the trained proxy, or off to train the priced architecture"),
    ] = ProxySpec()
    optimizer: Annotated[
        Literal["adamw", "sgd"], described('optimiser of clusters and server: "adamw" or "sgd"')
    ] = "adamw"
    learning_rate: Annotated[float, real("step size on the clusters", "1", gt=0, le=10)] = 3e-3
    server_learning_rate: Annotated[float, real("step size of the server's head", "1", gt=0, le=10)] = 3e-3
    weight_decay: Annotated[float, real("decoupled weight decay of matrices", "1", ge=0, le=10)] = 0.1
    token_dropout: Annotated[float, real("probability that a training token is hidden", "1", ge=0, lt=1)] = (
        0.3
    )
    weight_prediction: Annotated[
        bool,
        Field(
            strict=True,
            description="predict weights of stages that lag behind (asynchronous plans); off: stale ones",
        ),
    ] = True
    samples_per_pass: Annotated[
        int, whole("samples up to which micro-batches are computed in one pass", 1, 65536)
    ] = 16
    evaluate_every: Annotated[int, whole("rounds between evaluations", 1, 1_000_000)] = 5
    evaluation_samples: Annotated[int, whole("held-out samples per evaluation", 1, 1_000_000)] = 512
