"""The training step: texts → vectors → contrast with the pairs of all ranks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.contract import Embedder, EmbedderCard
from vidvec_msg.embedders.language_model import Dtype, Quantization, keep_blocks, load_language_model
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.runs import software_versions
from vidvec_msg.train import gather, provenance
from vidvec_msg.train.batches import PairBatch, Passage
from vidvec_msg.train.fused_lora import fuse_lora
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses import Contrast, EncodedPairs, InfoNCE, PairLoss
from vidvec_msg.train.optimizer import OptimizerOptions, make_optimizer
from vidvec_msg.train.side_by_side import portions, runs_side_by_side, states_side_by_side
from vidvec_msg.train.step_report import RunSize, StepReport
from vidvec_msg.train.text_tower import ChatTexts, last_states, reads_padding
from vidvec_msg.train.tuning import ADAPTER, Tuning, account, check_tuning, tune

log = logging.getLogger(__name__)


class TextContrastive(LightningModule):
    """A retrieval embedder from a multimodal LLM, by text-only contrastive training of its language model.

    Args:
        model: "tinyworld", a folder, or a hub name.
        revision: commit of a hub model.
        prompt: preset of the words around a text ("vidvec", "plain").
        layer: state that is read: -1 the normed final one, n block n's output; later blocks are not run.
        max_tokens: longest text in tokens; longer content is cut, the prompt never.
        loss: contrast of the vectors: InfoNCE, DualSoftmax, GuidedInfoNCE or Matryoshka of
            vidvec_msg.train.losses, or a PairLoss of your own. InfoNCE by default.
        tuning: what trains: "lora" an adapter, "full" every weight of the language model's blocks and its
            final norm, "full-with-embeddings" the token embeddings too.
        lora: the adapter: rank, scale, targets, rsLoRA, DoRA. None is made in full fine-tuning.
        optimizer: AdamW and its schedule.
        frames: which frames of a clip the embedder shows (fps, max_frames, max_pixels). Written into its
            card; training shows none. By default the embedder's own choice.
        transcript: where the embedder puts a clip's transcript: before the frames, after them, or none.
        dtype: of the frozen weights; adapters stay in float32. In full fine-tuning float32, with
            trainer.precision bf16-mixed to compute in bfloat16.
        quantization: "nf4" keeps the frozen linears in 4 bits and computes in dtype (QLoRA); the saved
            embedder opens on the model as it is published. Needs the extra qlora.
        gradient_checkpointing: recompute blocks in the backward pass: a third more time, half the memory.
        grad_cache: keep no activations but the vectors; each passage of a batch (data.passages,
            data.passage_tokens) runs again when its gradients are due. The same gradients with the
            activations of one passage in memory instead of all, for one more forward pass.
        trust_remote_code: run code that the model's repository brings.
    """

    def __init__(
        self,
        model: str = "tinyworld",
        revision: str | None = None,
        prompt: str = "vidvec",
        layer: int = FINAL,
        max_tokens: int = 1024,
        loss: PairLoss | None = None,
        tuning: Tuning = ADAPTER,
        lora: LoraOptions = LoraOptions(),  # noqa: B008 - frozen
        optimizer: OptimizerOptions = OptimizerOptions(),  # noqa: B008 - frozen
        frames: FramePolicy | None = None,
        transcript: Literal["before", "after", "none"] = "none",
        dtype: Dtype = "float32",
        quantization: Quantization | None = None,
        gradient_checkpointing: bool = False,
        grad_cache: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        self.strict_loading = False  # checkpoints hold the adapter alone
        self.base_model, self.revision = model, revision
        self.prompt = resolve_prompt(prompt)
        self.layer = layer
        self.max_tokens = max_tokens
        self.frames = frames
        self.transcript: Literal["before", "after", "none"] = transcript
        self.loss: PairLoss = InfoNCE() if loss is None else loss
        self.optimizer_options = optimizer
        check_tuning(tuning, lora, quantization, dtype)
        self.tuning: Tuning = tuning
        self.dtype_name = dtype
        self.quantization: Quantization | None = quantization
        self.trust_remote_code = trust_remote_code
        self.grad_cache = grad_cache
        self._guide: Embedder | None = None
        folder = resolve_model(model)
        self.chat = Chat.open(folder, revision=revision, trust_remote_code=trust_remote_code)
        try:
            self.tokenise("x")
        except ValueError as error:  # the prompt leaves no room: found out before the weights are loaded
            raise RefusedRequest(f"model.{error}") from error
        tower = load_language_model(
            folder,
            revision=revision,
            dtype=dtype,
            quantization=quantization,
            trust_remote_code=trust_remote_code,
        )
        keep_blocks(tower, layer)
        self._masked = reads_padding(tower, self.tokenise)
        self.tower = tune(tower, tuning, lora, final_norm=layer == FINAL)
        if gradient_checkpointing:
            self.tower.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.tower.enable_input_require_grads()
        fuse_lora(self.tower)
        # from_pretrained leaves evaluation mode on, in which neither dropout nor checkpointing happens
        self.tower.train()
        self.report = StepReport()

    # ---- what others need of it

    @property
    def tokenise(self) -> ChatTexts:
        """A text's tokens, prompt included; picklable."""
        return ChatTexts(self.chat, self.prompt, self.max_tokens)

    def card(self, name: str) -> EmbedderCard:
        """What the embedder is, as far as training knows; saving adds the weights' digest."""
        return EmbedderCard(
            name=name,
            dim=self.tower.config.hidden_size,
            modalities=self.chat.modalities,
            base_model=self.base_model,
            revision=self.revision,
            prompt=self.prompt,
            layer=self.layer,
            pooling="last",
            padding="right",
            frames=self.frames,
            transcript=self.transcript,
            dtype=self.dtype_name,
            trained_over=self.quantization or "",
            max_tokens=self.max_tokens,
            versions=software_versions(),
        )

    def run_size(self) -> RunSize:
        """How much was trained so far."""
        return self.report.size(self.trainer.global_step)

    # ---- the step

    def encode_batch(self, batch: PairBatch) -> EncodedPairs:
        """Vectors of this rank's pairs; a text that stands in several places is encoded once."""
        states = self._all_states(batch.passages)  # (texts, dim)
        texts = normalize(states, dim=-1)
        own = _roles(texts, batch)
        own.norms = states.detach().norm(dim=-1)  # (texts,)
        guide = self._opened_guide()
        if guide is not None:
            seen = [Item(str(row), text=text) for row, text in enumerate(batch.texts)]
            with torch.autocast(texts.device.type, enabled=False):  # it computes in its own dtype
                view = torch.from_numpy(guide.encode(seen, role="document")).to(texts.device)
            own.guide = _roles(view, batch)
        return own

    def _opened_guide(self) -> Embedder | None:
        """The embedder whose view the loss asks for, opened once."""
        if self._guide is None and self.loss.guide is not None:
            self._guide = load_embedder(self.loss.guide)
        return self._guide

    def _all_states(self, passages: list[Passage]) -> Tensor:
        """States ``(texts, dim)`` of a batch, float32."""
        if self.layer == FINAL and torch.is_grad_enabled() and runs_side_by_side(self.tower):
            parts = portions(passages, bounded=self.grad_cache)
            weights = [parameter for parameter in self.tower.parameters() if parameter.requires_grad]
            if len(parts) > 1 and self.tuning == ADAPTER:  # a passage's gradients of all weights are too many
                return states_side_by_side(self._read, parts, weights, keep=not self.grad_cache)
        return torch.cat([self._states(passage) for passage in passages])

    def _read(self, passage: Passage) -> Tensor:
        return last_states(self.tower, passage, layer=self.layer, masked=self._masked)

    def _states(self, passage: Passage) -> Tensor:
        """States ``(texts, dim)``, float32.

        Checkpointing a whole passage is what GradCache does (Gao et al. 2021): a first pass without
        activations, the loss over all vectors, a second pass per chunk with their gradients. Here autograd
        drives it: dropout repeats itself, the gradients of all passages are summed before DDP sees them, so
        it synchronises once, and any loss works.
        """
        if self.grad_cache and torch.is_grad_enabled():
            states: Tensor = checkpoint(self._read, passage, use_reentrant=False)
            return states
        return self._read(passage)

    def contrast(self, batch: PairBatch) -> tuple[Tensor, Contrast, EncodedPairs]:
        """This rank's term of the step's loss, its account, and the vectors of this rank."""
        own = self.encode_batch(batch)
        everyone, offset = gather.gather_pairs(own)
        # under bf16-mixed every product of matrices is rounded to bfloat16, float32 or not: scores would tie
        with torch.autocast(own.anchors.device.type, enabled=False):
            result = self.loss(own, everyone, offset)
        return gather.mean_over_ranks(result.rows, len(everyone)), result, own

    def setup(self, stage: str) -> None:
        """Opens the loss's guide: only now is this rank's GPU the one that "auto" means."""
        self._opened_guide()

    def on_fit_start(self) -> None:
        """Tells what trains."""
        self.report.begin()
        log.info(account(self.tower))

    def on_train_batch_start(self, batch: PairBatch, batch_idx: int) -> None:
        """Seeds the noise of the step."""
        torch.manual_seed(batch.noise_seed)  # dropout of a resumed run is that of an undisturbed one

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """This rank's term of the loss; logs the step's account."""
        loss, result, own = self.contrast(batch)
        self.report.train(self, batch, loss, result, own)
        return loss

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Logs the norm of the step's gradients."""
        self.report.gradients(self)

    def on_train_batch_end(self, outputs: Any, batch: PairBatch, batch_idx: int) -> None:
        """Logs what only the finished step tells."""
        self.report.after_step(self)

    def validation_step(self, batch: PairBatch | None, batch_idx: int) -> None:
        """Logs the loss of validation pairs among themselves."""
        if batch is None:  # no validation pairs: callbacks measure, see PairsData.val_dataloader
            return
        _, result, _ = self.contrast(batch)
        self.report.validate(self, batch, result)

    def configure_model(self) -> None:
        """Cuts the weights into shards where the strategy does that (FSDP2)."""
        shard = getattr(self.trainer.strategy, "shard", None)
        if shard is not None:
            shard(self)

    def configure_optimizers(self) -> Any:
        """AdamW over the adapter, its schedule stepped once per optimizer step."""
        parameters = [parameter for parameter in self.parameters() if parameter.requires_grad]
        steps = int(self.trainer.estimated_stepping_batches)
        optimizer, scheduler = make_optimizer(parameters, self.optimizer_options, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    # ---- checkpoints

    def trained_names(self) -> set[str]:
        """Parameters that train: the adapter's."""
        return {name for name, parameter in self.named_parameters() if parameter.requires_grad}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps what trains alone (a 7B base would be 15 GB in every checkpoint), and the run's account."""
        checkpoint["account"] = self.report.state()
        checkpoint[provenance.KEY] = provenance.describe(self)
        trained = self.trained_names()
        checkpoint["state_dict"] = {
            name: tensor for name, tensor in checkpoint["state_dict"].items() if name in trained
        }

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Refuses a checkpoint of another run, which a load that is not strict would take without a word."""
        provenance.refuse_another(provenance.of_checkpoint(checkpoint), provenance.describe(self))
        self.report.restore(checkpoint["account"])


def _roles(texts: Tensor, batch: PairBatch) -> EncodedPairs:
    """The vectors of a batch's distinct texts ``(texts, dim)``, each where its pairs need it."""
    return EncodedPairs(
        anchors=texts[batch.anchors],  # (pairs, dim)
        positives=texts[batch.positives],  # (pairs, dim)
        negatives=texts[batch.negatives.clamp(min=0)],  # (pairs, n, dim); row 0 in place of NO_TEXT
        keys=batch.keys,
    )
