"""Interface of tasks: data, the server's head, the loss and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.errors import ScenarioError
from collapipe_env.models.architecture import Architecture
from collapipe_env.models.style_fields import style_fields
from collapipe_env.scenario import Scenario
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.scenario.task_registry import TASKS, TaskTraits, task_traits

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Generator, Tensor, nn

BERT_TOKEN_TYPES = 2
"""Token types of BERT, one for each sentence of a pair: the default for a proxy in BERT's style."""

NO_TARGET = -100
"""Target of a position that predicts nothing; no token or tag has it, whatever their number."""


@dataclass(frozen=True)
class TaskSpec:
    """Settings of a task's data, head and metrics; hashable, so that data is prepared once.

    Attributes:
        architecture: Sizes of the trained embedding and encoder.
        outputs: Outputs V_out of the head: classes, tags or target vocabulary.
        decoder_blocks: Decoder blocks on the server.
        dataset: ``"embedded"``, the path of local data, or ``"hf:NAME"`` / ``"hf:NAME:CONFIG"`` for a data
            set of the Hugging Face hub. The other fields are those of
            :class:`~collapipe_env.scenario.learning.LearningSpec`.
    """

    architecture: Architecture
    outputs: int
    decoder_blocks: int = 0
    dataset: str = "embedded"
    text_column: str | int | None = None
    label_column: str | int | None = None
    languages: tuple[str, str] | None = None
    checkpoint: str | None = None
    beam_size: int = 1

    @classmethod
    def of(
        cls, architecture: Architecture, outputs: int, decoder_blocks: int, learning: LearningSpec
    ) -> TaskSpec:
        """Return the settings for an architecture, with those of a scenario's learning section."""
        taken = ("dataset", "text_column", "label_column", "languages", "checkpoint", "beam_size")
        return cls(architecture, outputs, decoder_blocks, **{name: getattr(learning, name) for name in taken})


def task_spec(scenario: Scenario) -> TaskSpec:
    """Return the settings of a scenario's task, for the trained architecture."""
    workload = scenario.workload
    return TaskSpec.of(
        trained_architecture(scenario), workload.outputs, workload.decoder_blocks, scenario.learning
    )


def trained_architecture(scenario: Scenario) -> Architecture:
    """Return the trained architecture: the scenario's proxy, or the priced one if the proxy is off."""
    workload, proxy = scenario.workload, scenario.learning.proxy
    sizes = proxy or workload
    style, positions, types = workload.style, workload.learned_positions, workload.token_types
    if proxy is not None:
        style = proxy.style or style
        # A proxy needs no more positions than it has tokens.
        positions = sizes.sequence_length if style in ("bert", "gpt2") else 0
        types = (types or BERT_TOKEN_TYPES) if style == "bert" else 0
    return Architecture(
        blocks=workload.blocks,
        width=sizes.width,
        feedforward=sizes.feedforward,
        heads=sizes.heads,
        sequence_length=sizes.sequence_length,
        vocabulary=sizes.vocabulary,
        style=style,
        learned_positions=positions,
        token_types=types,
        dropout=scenario.learning.dropout,
        causal=task_traits(workload.task).causal,
        kv_heads=sizes.kv_heads,
        **style_fields(workload, style),
    )


@dataclass(frozen=True)
class Split:
    """Samples ready for training or evaluation.

    Attributes:
        tokens: Token ids, shape (samples, q); 0 is padding.
        targets: Expected outputs of the head, shape (samples, ...); each task has its own value for "none".
        references: Expected results for the metrics, one a sample, where targets are not enough: the words'
            tags, or the reference translation. Empty otherwise.
    """

    tokens: IntArray
    targets: IntArray
    references: tuple[Any, ...] = ()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.tokens)

    def subset(self, indices: IntArray) -> Split:
        """Return the samples at ``indices``, in that order."""
        references = tuple(self.references[i] for i in indices.tolist()) if self.references else ()
        return Split(self.tokens[indices], self.targets[indices], references)


@dataclass(frozen=True)
class TaskData:
    """The data of a task.

    Attributes:
        train: Training samples.
        dev: Samples for choosing hyper-parameters; neither tokeniser nor model ever learns from them.
        test: Samples for the reported figures; used for nothing else.
        strata: Class of every training sample for label-skewed partitions, shape (samples,).
        lengths: Real tokens of every training sample for length-skewed partitions, shape (samples,).
        classes: Names of the outputs, in the order of their numbers; empty for a vocabulary.
        decode: Turns rows of target ids into texts, where the task writes text.
        hidden: Token that replaces a hidden one in training: the unknown token, or a checkpoint's mask.
        pack: Packs the documents with the given numbers into samples, separately for each cluster. Strata and
            lengths then refer to documents, shape (documents,), and ``train`` holds all of them. None where
            every sample is one document.
        end: Id that ends a text, where the task continues texts.
        unwritten: Ids that the model never writes.
        tokenizer: Tokeniser with these ids for a saved model, where the task has learned its own.
    """

    train: Split
    dev: Split
    test: Split
    strata: IntArray
    lengths: IntArray
    classes: tuple[str, ...] = ()
    decode: Callable[[IntArray], list[str]] | None = field(default=None, compare=False)
    hidden: int = 1
    pack: Callable[[IntArray], Split] | None = field(default=None, compare=False)
    end: int | None = None
    unwritten: tuple[int, ...] = ()
    tokenizer: Tokenizer | None = field(default=None, compare=False)


class Task(Protocol):
    """A task of the federation. Implementations keep no state: one instance serves every learner.

    A task may also have ``constant_answer(spec, part)``: the share of the part ``"dev"`` or ``"test"`` for
    which the best constant answer is right. Reports compare training with it. It may have
    ``data_line(spec)``: a line about data of the user's own that every run prints.

    A task whose metrics follow from the probabilities of the targets has ``measure(outputs, targets)``, a
    figure for each sample, shape (samples,), instead of :meth:`predict`; :meth:`score` receives these
    figures. A task that writes text has ``continuations``, as in
    :class:`~collapipe_env.tasks.language_modelling.LanguageModelling`.
    """

    name: str
    metrics: tuple[str, ...]
    """Names of the metrics that :meth:`score` returns; the first is the headline."""
    traits: TaskTraits
    """Traits from which the task is priced and its workload checked."""

    def load(self, spec: TaskSpec) -> TaskData:
        """Return the data, from a per-process cache after the first call.

        Raises:
            DataError: If the data cannot be read, or does not fit the specification.
            CheckpointError: If the checkpoint's tokeniser cannot be read.
            ScenarioError: If the task does not fit the workload.
        """
        ...

    def classes(self, spec: TaskSpec) -> tuple[str, ...]:
        """Return the classes or tags of the training data, whose number must equal ``outputs``.

        Empty for a task whose outputs are a vocabulary. ``spec.outputs`` is not read.

        Raises:
            DataError: If the data cannot be read.
        """
        ...

    def build_head(self, spec: TaskSpec, generator: Generator) -> nn.Module:
        """Return the server's module, initialised from ``generator`` alone.

        It is called with encoder outputs (samples, q, d), the mask of real tokens (samples, q) and the
        targets, which only a decoder under teacher forcing reads.
        """
        ...

    def units(self, targets: Tensor) -> Tensor:
        """Return the number of predictions of each sample, shape (samples,), floating point."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean loss over all units, a scalar in nats.

        Args:
            smoothing: Label smoothing, in [0, 1).
        """
        ...

    def predict(self, head: nn.Module, hidden: Tensor, mask: Tensor, spec: TaskSpec) -> Tensor:
        """Return predicted ids, one row a sample, without using the targets.

        Args:
            hidden: Encoder outputs, shape (samples, q, d).
            mask: True at real tokens, shape (samples, q).
        """
        ...

    def score(self, predictions: IntArray, split: Split, data: TaskData) -> Mapping[str, float]:
        """Return the metrics of a whole split, by the names in :attr:`metrics`.

        Args:
            predictions: Rows of :meth:`predict` (or figures of ``measure``) for all samples of the split.
        """
        ...


def writes_text(task: Task) -> bool:
    """Whether a task has ``continuations``, so that its models write samples."""
    return callable(getattr(task, "continuations", None))


def require_writing(task: Task) -> Callable[..., Any]:
    """Return ``continuations`` of a task that writes text.

    Raises:
        ScenarioError: If it has none.
    """
    if not writes_text(task):
        raise ScenarioError(
            f"task {task.name!r} does not continue texts, so it writes no samples: leave --samples out, or "
            "use task language-modelling"
        )
    return cast(Callable[..., Any], task.continuations)  # type: ignore[attr-defined]


def get_task(name: str) -> Task:
    """Return the task of that name.

    Raises:
        ScenarioError: If there is none (the message names the nearest), or it cannot be imported.
    """
    task: Task = TASKS.get(name)()
    return task
