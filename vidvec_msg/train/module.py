"""The training step: texts → vectors → contrast with the pairs of all ranks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.check import warn_if_collapsed
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.language_model import Dtype, keep_blocks, load_language_model
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.models import resolve_model
from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.prompts import resolve_prompt
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.runs import software_versions
from vidvec_msg.train import gather
from vidvec_msg.train.batches import PairBatch, Passage, Tokenise
from vidvec_msg.train.lora import LoraOptions, account, add_lora
from vidvec_msg.train.losses import Contrast, EncodedPairs, InfoNCE, PairLoss
from vidvec_msg.train.optimizer import OptimizerOptions, make_optimizer
from vidvec_msg.train.text_tower import ChatTexts, encode

log = logging.getLogger(__name__)


class NonFiniteLoss(JobFailed):
    """The loss is NaN or infinite; the message names the batch."""


@dataclass(frozen=True, slots=True)
class RunSize:
    """Of a fit, for its account: optimizer steps, pairs and seconds, those before a resumption included."""

    steps: int
    pairs: int
    seconds: float


class TextContrastive(LightningModule):
    """A retrieval embedder from a multimodal LLM, by text-only contrastive LoRA on its language model.

    Args:
        model: "tinyworld", a folder, or a hub name.
        revision: commit of a hub model.
        prompt: preset of the words around a text ("vidvec", "plain").
        layer: state that is read: -1 the normed final one, n block n's output; later blocks are not run.
        max_tokens: longest text in tokens; longer content is cut, the prompt never.
        loss: contrast of the vectors: InfoNCE, DualSoftmax, GuidedInfoNCE or Matryoshka of
            vidvec_msg.train.losses, or a PairLoss of your own. InfoNCE by default.
        lora: what is adapted.
        optimizer: AdamW and its schedule.
        frames: which frames of a clip the embedder shows (fps, max_frames, max_pixels). Written into its
            card; training shows none. By default the embedder's own choice.
        transcript: where the embedder puts a clip's transcript: before the frames, after them, or none.
        dtype: of the frozen weights; adapters stay in float32.
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
        lora: LoraOptions = LoraOptions(),  # noqa: B008 - frozen
        optimizer: OptimizerOptions = OptimizerOptions(),  # noqa: B008 - frozen
        frames: FramePolicy | None = None,
        transcript: Literal["before", "after", "none"] = "none",
        dtype: Dtype = "float32",
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
        self.dtype_name = dtype
        self.trust_remote_code = trust_remote_code
        self.grad_cache = grad_cache
        self._guide = None if self.loss.guide is None else load_embedder(self.loss.guide)
        folder = resolve_model(model)
        self.chat = Chat.open(folder, revision=revision, trust_remote_code=trust_remote_code)
        try:
            self.tokenise("x")
        except ValueError as error:  # the prompt leaves no room: found out before the weights are loaded
            raise RefusedRequest(f"model.{error}") from error
        tower = load_language_model(
            folder, revision=revision, dtype=dtype, trust_remote_code=trust_remote_code
        )
        keep_blocks(tower, layer)
        self.tower = add_lora(tower, lora)
        if gradient_checkpointing:
            self.tower.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.tower.enable_input_require_grads()
        # from_pretrained leaves evaluation mode on, in which neither dropout nor checkpointing happens
        self.tower.train()
        self._began = time.monotonic()
        self._seconds_before = 0.0  # of the run that is resumed
        self._pairs_seen = 0
        self._told_of_cuts = False
        self._window: tuple[float, int, int] | None = None  # start, pairs, tokens since the last rate

    # ---- what others need of it

    @property
    def tokenise(self) -> Tokenise:
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
            max_tokens=self.max_tokens,
            versions=software_versions(),
        )

    def run_size(self) -> RunSize:
        """How much was trained so far."""
        seconds = self._seconds_before + time.monotonic() - self._began
        return RunSize(self.trainer.global_step, self._pairs_seen, seconds)

    # ---- the step

    def encode_batch(self, batch: PairBatch) -> EncodedPairs:
        """Vectors of this rank's pairs; a text that stands in several places is encoded once."""
        texts = torch.cat([self._encode(passage) for passage in batch.passages])  # (texts, dim)
        own = _roles(texts, batch)
        if self._guide is not None:
            seen = [Item(str(row), text=text) for row, text in enumerate(batch.texts)]
            view = torch.from_numpy(self._guide.encode(seen, role="document")).to(texts.device)
            own.guide = _roles(view, batch)
        return own

    def _encode(self, passage: Passage) -> Tensor:
        """Vectors ``(texts, dim)``.

        Checkpointing a whole passage is what GradCache does (Gao et al. 2021): a first pass without
        activations, the loss over all vectors, a second pass per chunk with their gradients. Here autograd
        drives it: dropout repeats itself, the gradients of all passages are summed before DDP sees them, so
        it synchronises once, and any loss works.
        """
        if self.grad_cache and torch.is_grad_enabled():
            states: Tensor = checkpoint(encode, self.tower, passage, layer=self.layer, use_reentrant=False)
            return states
        return encode(self.tower, passage, layer=self.layer)

    def contrast(self, batch: PairBatch) -> tuple[Tensor, Contrast, EncodedPairs]:
        """This rank's term of the step's loss, its account, and the vectors of this rank."""
        own = self.encode_batch(batch)
        everyone, offset = gather.gather_pairs(own)
        result = self.loss(own, everyone, offset)
        return gather.mean_over_ranks(result.rows, len(everyone)), result, own

    def on_fit_start(self) -> None:
        """Tells what trains."""
        self._began = time.monotonic()
        log.info(account(self.tower))

    def on_train_batch_start(self, batch: PairBatch, batch_idx: int) -> None:
        """Seeds the noise of the step."""
        torch.manual_seed(batch.noise_seed)  # dropout of a resumed run is that of an undisturbed one

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """This rank's term of the loss; logs the step's account."""
        first = self._window is None
        loss, result, own = self.contrast(batch)
        self._refuse_non_finite(loss, result, batch)
        if first:
            self._first_batch(result, own)
        self._log("train", loss, result, len(batch))
        self.log("train/cut_texts", float(batch.cut), reduce_fx="sum", batch_size=len(batch), sync_dist=True)
        self._tell_of_cuts(batch)
        self._log_speed(batch)
        self.log("lr", self.optimizers().param_groups[0]["lr"], prog_bar=False)  # type: ignore[union-attr]
        return loss

    def validation_step(self, batch: PairBatch | None, batch_idx: int) -> None:
        """Logs the loss of validation pairs among themselves."""
        if batch is None:  # no validation pairs: callbacks measure, see PairsData.val_dataloader
            return
        loss, result, _ = self.contrast(batch)
        self._log("val", loss, result, len(batch))

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
        """Keeps the adapter alone (a 7B base would be 15 GB in every checkpoint), and the run's account."""
        size = self.run_size()
        checkpoint["account"] = {"pairs_seen": size.pairs, "seconds": size.seconds}
        trained = self.trained_names()
        checkpoint["state_dict"] = {
            name: tensor for name, tensor in checkpoint["state_dict"].items() if name in trained
        }

    def on_load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Refuses a checkpoint of another adapter, which a non-strict load would take without a word."""
        own = {name: tuple(p.shape) for name, p in self.named_parameters() if p.requires_grad}
        found = {name: tuple(tensor.shape) for name, tensor in checkpoint["state_dict"].items()}
        if own == found:
            account = checkpoint.get("account", {})
            self._pairs_seen = account.get("pairs_seen", 0)
            self._seconds_before = account.get("seconds", 0.0)
            return
        differing = sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name))
        name = differing[0]
        raise RefusedRequest(
            f"the checkpoint is of another adapter: {len(differing)} weights differ, for example {name} is "
            f"{found.get(name, 'not there')} in it and {own.get(name, 'not there')} in this model. "
            "Use the model and lora options that it was trained with (its run's config.yaml)."
        )

    # ---- accounts

    def _refuse_non_finite(self, loss: Tensor, result: Contrast, batch: PairBatch) -> None:
        if bool(torch.isfinite(loss)):
            return
        bad = [
            name for name, row in zip(batch.names, result.rows, strict=True) if not bool(torch.isfinite(row))
        ]
        raise NonFiniteLoss(
            f"the loss is {loss.item()} at step {self.trainer.global_step}, batch {batch.number} "
            f"(pairs {', '.join(bad[:8])}{', …' if len(bad) > 8 else ''}). Lower model.optimizer.lr, "
            f"or compute in float32 or bfloat16 (dtype is {self.dtype_name}, "
            f"precision {self.trainer.precision})."
        )

    def _first_batch(self, result: Contrast, own: EncodedPairs) -> None:
        count = len(own)
        per_anchor = result.negatives.item() / count
        accumulated = self.trainer.accumulate_grad_batches
        note = f"; accumulating {accumulated} batches adds none" if accumulated > 1 else ""
        log.info(f"{per_anchor:.1f} negatives per anchor on {gather.ranks()} rank(s){note}")
        both = torch.cat((own.anchors, own.positives)).detach().float().cpu().numpy()  # (2 · pairs, dim)
        keys = torch.cat((own.keys.anchor, own.keys.positive)).tolist()
        warn_if_collapsed(both, [Item(str(key)) for key in keys], name="in training")

    def _tell_of_cuts(self, batch: PairBatch) -> None:
        if batch.cut and not self._told_of_cuts:
            self._told_of_cuts = True
            log.warning(
                "batch %d: %d of %d distinct texts are longer than max_tokens=%d and lose their end; the "
                "prompt stays whole. train/cut_texts counts them.",
                batch.number,
                batch.cut,
                len(batch.texts),
                self.max_tokens,
            )

    def _log(self, stage: str, loss: Tensor, result: Contrast, pairs: int) -> None:
        shared: dict[str, Any] = {"batch_size": pairs, "sync_dist": True, "on_step": stage == "train"}
        shared["on_epoch"] = not shared["on_step"]
        for name, value in self.loss.named_parameters():
            self.log(f"{stage}/loss.{name}", value.detach(), **shared)
        self.log(f"{stage}/loss", loss.detach(), prog_bar=True, **shared)
        self.log(f"{stage}/accuracy", result.correct.float().mean(), prog_bar=True, **shared)
        self.log(f"{stage}/negatives_per_anchor", result.negatives / max(pairs, 1), **shared)
        self.log(f"{stage}/masked_cells", result.masked.float(), reduce_fx="sum", **shared)  # of all ranks

    def _log_speed(self, batch: PairBatch) -> None:
        """Pairs and tokens per second of all ranks, over the steps since the last log."""
        now = time.monotonic()
        self._pairs_seen += len(batch) * gather.ranks()
        if self._window is None:
            self._window = (now, 0, 0)  # the first step warms up
            return
        start, pairs, tokens = self._window
        pairs, tokens = pairs + len(batch) * gather.ranks(), tokens + batch.tokens * gather.ranks()
        seconds = max(now - start, 1e-9)
        self.log("pairs_per_second", pairs / seconds, prog_bar=True)
        self.log("tokens_per_second", tokens / seconds)
        self._window = (start, pairs, tokens) if seconds < 10 else (now, 0, 0)


def _roles(texts: Tensor, batch: PairBatch) -> EncodedPairs:
    """The vectors of a batch's distinct texts ``(texts, dim)``, each where its pairs need it."""
    return EncodedPairs(
        anchors=texts[batch.anchors],  # (pairs, dim)
        positives=texts[batch.positives],  # (pairs, dim)
        negatives=texts[batch.negatives.clamp(min=0)],  # (pairs, n, dim); row 0 in place of NO_TEXT
        keys=batch.keys,
    )
