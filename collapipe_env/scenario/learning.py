"""What the learners train: data, trained proxy, optimisers and evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ProxySpec:
    """Sizes of the Transformer that is really trained in place of the priced one.

    The proxy keeps the priced architecture's block count and segments; only its widths, sequence length and
    vocabulary differ, so that a paper-size system can be studied on a laptop.

    Attributes:
        width: Model width d, even and a multiple of ``heads``.
        feedforward: Width of the feed-forward layer.
        heads: Attention heads.
        sequence_length: Tokens per sample; longer texts are cut, shorter ones padded.
        vocabulary: Rows of the embedding table; the tokeniser learns at most that many tokens.
    """

    width: Annotated[
        int, Field(ge=2, le=8192, multiple_of=2, description="model width d; even, 2 to 8192")
    ] = 32
    feedforward: Annotated[
        int, Field(ge=1, le=65536, description="feed-forward width d_ff; 1 to 65536")
    ] = 64
    heads: Annotated[int, Field(ge=1, le=256, description="attention heads; divides width, 1 to 256")] = 2
    sequence_length: Annotated[
        int, Field(ge=2, le=8192, description="tokens per sample; 2 to 8192")
    ] = 32
    vocabulary: Annotated[
        int, Field(ge=64, le=1_000_000, description="rows of the embedding table; 64 to 1,000,000")
    ] = 2000

    @model_validator(mode="after")
    def _heads_divide_width(self) -> ProxySpec:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}; change one of them")
        return self


def _off_is_none(value: Any) -> Any:
    """Map YAML 1.2's plain ``off`` (a string there) and booleans to what they mean for a proxy."""
    if value is False or (isinstance(value, str) and value.strip().lower() in {"off", "none", "no", "false"}):
        return None
    if value is True or (isinstance(value, str) and value.strip().lower() in {"on", "yes", "true"}):
        return ProxySpec()
    return value


ColumnName = str | int


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class LearningSpec:
    """Data, proxy, optimisers and evaluation of the learners.

    Attributes:
        dataset: ``"embedded"`` (rated review sentences shipped with the package) or the path of a local TSV or
            CSV file, or of a folder with ``train``, ``dev`` and ``test`` files.
        text_column: Header name or 0-based index of the text column; None detects it.
        label_column: Header name or 0-based index of the label column; None detects it.
        partition: How the training data is spread over the clusters.
        dirichlet_alpha: Concentration of the Dirichlet label skew; small values skew more.
        proxy: Sizes of the trained proxy; None (``off`` in YAML) trains the priced architecture itself.
        optimizer: Optimiser of the clusters and of the server.
        learning_rate: Step size of the clusters' optimisers.
        server_learning_rate: Step size of the server's optimiser, which trains the task head.
        weight_decay: Decoupled weight decay of matrices (biases and norms are spared).
        evaluate_every: Rounds between two evaluations.
        evaluation_samples: At most that many held-out samples are evaluated.
    """

    dataset: Annotated[
        str, Field(min_length=1, description='"embedded" or the path of a TSV/CSV file or folder')
    ] = "embedded"
    text_column: Annotated[
        ColumnName | None, Field(description="header name or 0-based index of the text column; empty = detect")
    ] = None
    label_column: Annotated[
        ColumnName | None, Field(description="header name or 0-based index of the label column; empty = detect")
    ] = None
    partition: Annotated[
        Literal["iid", "dirichlet"], Field(description='spread of the data over clusters: "iid" or "dirichlet"')
    ] = "iid"
    dirichlet_alpha: Annotated[
        float, Field(gt=0, le=1e6, description="concentration of the label skew; above 0, to 1e6")
    ] = 0.5
    proxy: Annotated[
        ProxySpec | None,
        BeforeValidator(_off_is_none),
        Field(description="sizes of the trained proxy, or off to train the priced architecture"),
    ] = ProxySpec()
    optimizer: Annotated[
        Literal["adamw", "sgd"], Field(description='optimiser of clusters and server: "adamw" or "sgd"')
    ] = "adamw"
    learning_rate: Annotated[
        float, Field(gt=0, le=10, description="step size on the clusters; above 0, to 10")
    ] = 3e-3
    server_learning_rate: Annotated[
        float, Field(gt=0, le=10, description="step size of the server's head; above 0, to 10")
    ] = 3e-3
    weight_decay: Annotated[
        float, Field(ge=0, le=10, description="decoupled weight decay of matrices; 0 to 10")
    ] = 0.01
    evaluate_every: Annotated[
        int, Field(ge=1, le=1_000_000, description="rounds between evaluations; 1 to 1,000,000")
    ] = 5
    evaluation_samples: Annotated[
        int, Field(ge=1, le=1_000_000, description="held-out samples per evaluation; 1 to 1,000,000")
    ] = 512
