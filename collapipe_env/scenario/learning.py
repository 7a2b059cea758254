"""The learning section of a scenario: data, trained proxy, optimisers and evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from collapipe_env.models.style_fields import Style, require_heads
from collapipe_env.scenario.fields import Text, field, real, spec, switch, whole


@spec
class ProxySpec:
    """Sizes of the proxy, the Transformer that is trained in place of the priced one.

    The proxy keeps the priced architecture's block count and segments. Its widths, sequence length and
    vocabulary differ, and its style may differ, so a paper-size system can be studied on a laptop.

    Attributes:
        style: Style of blocks and embedding; None takes the workload's. It does not change the priced model,
            whose FLOPs, parameters and activations are those of ``workload.style``.
    """

    style: Style | None = field("bert", "style of blocks and embedding, as priced if null")
    width: int = whole(32, "model width d, a multiple of heads", 2, 8192)
    feedforward: int = whole(64, "feed-forward width d_ff", 1, 65536)
    heads: int = whole(2, "attention heads, a divisor of the width", 1, 256)
    sequence_length: int = whole(32, "tokens per sample, to which texts are cut or padded", 2, 8192)
    vocabulary: int = whole(2000, "rows of the embedding, the most tokens that are learnt", 64, 1_000_000)
    kv_heads: int = whole(0, "heads of keys and values, style llama, a divisor of heads; 0 for all", 0, 256)

    @model_validator(mode="after")
    def _heads_fit(self) -> ProxySpec:
        require_heads(self.style, self.width, self.heads, self.kv_heads)
        if self.style not in (None, "llama") and self.kv_heads:
            raise ValueError(
                f"kv_heads = {self.kv_heads} needs style = 'llama', but style is {self.style!r}; set it to 0"
            )
        return self


def _off_is_none(value: Any) -> Any:
    """Map YAML 1.2's plain ``off`` (a string there) and booleans to no proxy and the default one."""
    if value is False or (isinstance(value, str) and value.strip().lower() in {"off", "none", "no", "false"}):
        return None
    if value is True or (isinstance(value, str) and value.strip().lower() in {"on", "yes", "true"}):
        return ProxySpec()
    return value


ColumnName = Text | Annotated[int, Field(ge=0, le=1_000_000)]


@spec
class LearningSpec:
    """Data, proxy, optimisers and evaluation of the learners.

    Attributes:
        dataset: ``"embedded"`` is the package's own data for the task; ``"hf:NAME:CONFIG"`` names a part of a
            data set of the Hugging Face hub (extra ``hub``).
        languages: Source and target language of parallel text, as the endings of its files or its columns
            have them. None detects them: English is the source if it is one of the two, otherwise they are in
            alphabetical order.
        checkpoint: Local folder of a checkpoint in Hugging Face format to start from, with ``proxy: off`` and
            its style (BERT, GPT-2; ``llama`` for Llama and Qwen2); None starts from random weights.
        learning_rate: Step size of the clusters' optimisers. The default suits the default proxy. With proxy
            off, 3e-5 for both rates trains a model of width 256, which 3e-4 makes diverge in its first round.
        schedule_steps: More than the warm-up if the schedule falls to 0 (linear, cosine); None takes the
            episode's local steps: rounds times ``workload.local_steps``.
        proximal: Weight mu of FedProx's pull towards the round's common model. The first local step starts
            there, so the pull has an effect only with ``workload.local_steps`` above 1.
        weight_prediction: Under an asynchronous pipeline, let stages whose weights lag behind compute with
            weights predicted by the optimiser's own rule (XPipe); false for the stale weights themselves
            (PipeDream). Synchronous plans are not affected.
        samples_per_pass: Consecutive micro-batches are computed in one pass while together they have at most
            this many samples: the same gradient in less time. 1 computes each one separately. Where one step
            of plain SGD allows it, passes are also joined over the clusters, and are then larger.
        metric_every: Rounds between two computations of metrics, a multiple of ``evaluate_every`` in effect;
            writing translations takes longer than a loss.
        evaluation: ``inline``, or ``background`` for evaluating a copy of the model while later rounds train;
            the figures are then reported one evaluation later.
    """

    dataset: Annotated[Text, Field(min_length=1)] = field("embedded", '"embedded", a path, or "hf:NAME"')
    text_column: ColumnName | None = field(None, "name or 0-based index of the text column; null = detect")
    label_column: ColumnName | None = field(None, "name or 0-based index of the label column; null = detect")
    languages: tuple[Text, Text] | None = field(None, "languages of parallel text; null = detect")
    checkpoint: Text | None = field(None, "path of a checkpoint to start from; null = random weights")
    evaluation_split: Literal["test", "dev"] = field(
        "test", "held-out part that is evaluated: test for figures to report, dev to choose hyper-parameters"
    )
    partition: Literal["iid", "dirichlet", "length", "quantity"] = field(
        "iid",
        "spread of the data over clusters: at random, by Dirichlet label skew, length or Dirichlet sizes",
    )
    dirichlet_alpha: float = real(0.5, "concentration of Dirichlet kinds, small values skew more", "(0, 1e6]")
    proxy: Annotated[ProxySpec | None, BeforeValidator(_off_is_none)] = field(
        ProxySpec(), "sizes of the trained proxy, or off to train the priced architecture"
    )
    optimizer: Literal["adamw", "sgd"] = field("adamw", "optimiser of clusters and server")
    momentum: float = real(0.0, "momentum of sgd", "[0, 1)")
    learning_rate: float = real(3e-3, "step size on the clusters", "(0, 10]")
    server_learning_rate: float = real(3e-3, "step size of the server's head or decoder", "(0, 10]")
    weight_decay: float = real(0.1, "decoupled weight decay of matrices, not of biases and norms", "[0, 10]")
    gradient_clip: float = real(0.0, "largest norm of a cluster's gradient in a step, 0 for any", "[0, 1e6]")
    schedule: Literal["constant", "linear", "cosine", "inverse-sqrt"] = field(
        "constant", "step sizes over the local steps"
    )
    warmup_steps: int = whole(10, "local steps in which step sizes grow to their full value", 0, 1_000_000)
    schedule_steps: int | None = whole(
        None, "local steps that the schedule is laid out for, the episode's if null", 1, 1_000_000_000
    )
    proximal: float = real(0.0, "FedProx's mu", "[0, 1e6]")
    aggregation: Literal["fedavg", "fedavgm", "fedadam", "fedyogi"] = field(
        "fedavg", "rule by which the server turns the clusters' mean update into the next model"
    )
    aggregation_rate: float | None = real(
        None, "step size of the aggregation, 1 or (if adaptive) 0.01 if null", "(0, 100]"
    )
    aggregation_momentum: float = real(0.9, "first decay beta_1 of fedavgm, fedadam and fedyogi", "[0, 1)")
    aggregation_second_momentum: float = real(0.99, "second decay beta_2 of fedadam and fedyogi", "[0, 1)")
    aggregation_floor: float = real(
        1e-3, "number tau added to the root of the second moment in fedadam and fedyogi", "(0, 1]"
    )
    token_dropout: float = real(0.5, "probability that a training token becomes the unknown one", "[0, 1)")
    dropout: float = real(0.0, "dropout probability inside the model", "[0, 1)")
    label_smoothing: float = real(0.0, "share of training targets that is spread over all outputs", "[0, 1)")
    beam_size: int = whole(1, "beams of the search that writes translations, 1 is greedy", 1, 64)
    weight_prediction: bool = switch(
        True, "predict weights of stages that lag behind (asynchronous plans); off: stale ones"
    )
    samples_per_pass: int = whole(64, "samples up to which micro-batches are computed in one pass", 1, 65536)
    evaluate_every: int = whole(5, "rounds between evaluations", 1, 1_000_000)
    evaluation_samples: int = whole(512, "held-out samples per evaluation", 1, 1_000_000)
    metric_every: int = whole(5, "rounds between metrics", 1, 1_000_000)
    metric_samples: int = whole(512, "evaluated samples that enter metrics", 1, 1_000_000)
    evaluation: Literal["inline", "background"] = field("inline", "time of evaluation")
    device: Literal["auto", "cpu", "cuda"] = field(
        "auto", "PyTorch device that trains the model, auto for a GPU if there is one"
    )
    precision: Literal["float32", "bfloat16"] = field(
        "float32", "precision of forward passes, while weights stay in float32"
    )

    @model_validator(mode="after")
    def _consistent(self) -> LearningSpec:
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum = {self.momentum:g} is for optimizer = 'sgd', but it is {self.optimizer!r}; set "
                "momentum to 0"
            )
        falls_to_zero = self.schedule in ("linear", "cosine")
        if falls_to_zero and self.schedule_steps is not None and self.schedule_steps <= self.warmup_steps:
            raise ValueError(
                f"schedule_steps = {self.schedule_steps} ends schedule = {self.schedule!r} within "
                f"warmup_steps = {self.warmup_steps}, so step sizes would fall to 0 at once; raise "
                "schedule_steps or lower warmup_steps"
            )
        if self.checkpoint is not None and self.proxy is not None:
            raise ValueError(
                "checkpoint needs proxy: off, since the weights of a checkpoint fit its own sizes only"
            )
        return self
