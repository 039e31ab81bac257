"""The loaded model under the table: which layers move, how a head rotates, and queries and keys that arrive unrotated."""
import functools
import os

import numpy as np
import torch
from vllm.model_executor.layers.attention import Attention as AttentionLayer, ChunkedLocalAttention
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbeddingBase
from vllm.v1.attention.backend import AttentionType

from dpe_attention import Attention, TableError, fingerprint, formula_table

from dpe_vllm.serving import folder_of, logger, serving

# Their frequencies depend on the length of the text, so there are none to compare with the table's.
LENGTH_DEPENDENT = ("dynamic", "longrope")


# Of these families the layers without a window have no positions, where others have one.
WINDOWS_ROTATE = ("cohere2", "exaone4")


class Unrotated(torch.nn.Module):
    """In the place of a moving layer's rotation: tokens of texts under an entry keep the queries and keys that they have, all
    others get the model's own rotation. The first are rotated by a row of cosines of 1 and sines of 0 after the model's, so that
    what is launched does not depend on them. rows: bool, whether each token of the batch is one of these (Moved)."""

    def __init__(self, rotary, rows):
        super().__init__()
        self.rotary, self.still = rotary, len(rotary.cos_sin_cache) - 1
        self.register_buffer("rows", rows, persistent=False)

    def forward(self, positions, query, key=None):
        # The last: positions of a warm-up run are those that the tokens before had; and drafts of a text that ends at the trained
        # length may lie past the table's end. They are never kept, but NaN would spoil the tokens before them.
        at = torch.where(self.rows[:positions.shape[-1]], self.still, positions).clamp(max=self.still)
        return self.rotary(at, query, key)


MOST_KEPT = 8  # plans whose tables of cosines and sines are kept: a tool runs one after another


class Moved:
    """The moving layers of a model, by name, with their numbers, and all layers so; and attention under plans, by digest.
    rows, numbers: for each token of a batch whether its text is under a plan, and for each text 0 or the number of its plan. draft: the
    same of a draft's layers, None: it has none."""

    def __init__(self, runner, layers, all_layers, order, rank, size):
        self.layers, self.all_layers, self.order, self.rank, self.size = layers, all_layers, order, rank, size
        self.runner, self.draft = runner, None
        self.rows = torch.zeros(runner.max_num_tokens, dtype=torch.bool, device=runner.device)
        self.numbers = runner._make_buffer(runner.max_num_reqs, dtype=torch.int32)
        self.attention = functools.lru_cache(MOST_KEPT)(self._attention)
        self.plans, self.digests, self.compared = None, [], set()  # cards.py

    def of(self, name):
        """The model that a layer belongs to: this one or its draft."""
        return self.draft if self.draft and name not in self.all_layers else self

    def plan(self, digest):
        """With the heads of this process alone."""
        return serving().plans[digest].of_heads(self.rank, self.size)

    def _attention(self, digest, moves=True, window=None):
        """Of a layer that moves, or of one in a window that does not."""
        plan = self.plan(digest)
        return Attention(plan if moves else plan.still(window), order=self.order, keep_keys=False)

    def in_order(self, x):
        """x [..., head_dim] in the table's order of components."""
        return x if self.order is None else x[..., self.order]


class Draft(Moved):
    """Of a draft model or head that vLLM loaded beside the model `moved`: parents as _attention_modules has them. TableError: no plan
    of the model fits it."""

    def __init__(self, moved, parents, moving, model):
        numbers = {name: i for i, name in enumerate(parents)}
        super().__init__(moved.runner, {name: numbers[name] for name in moving}, numbers, moved.order, moved.rank, moved.size)
        one = next(iter(moving.values()))
        own, found = (_pairs(rotary) for rotary in (model.rotary_emb, one.rotary_emb))
        if (found, one.attn.head_size) != (own, model.attn.head_size) or _order(one.rotary_emb, one.attn.head_size) != moved.order:
            raise TableError(f"--speculative-config: the draft rotates {found} pairs of heads of {one.attn.head_size}, the model "
                             f"{own} of {model.attn.head_size}: no plan of the model fits it; expected a draft with such heads, or "
                             "drafts without a model (ngram, suffix)")
        self._sizes = len(parents), one.attn.num_heads, one.attn.num_kv_heads, one.attn.head_size
        self._ratio = np.ones(one.attn.head_size // 2)
        if one.rotary_emb is not model.rotary_emb:
            (own, factor), (found, other) = _rotation(model.rotary_emb), _rotation(one.rotary_emb)
            if abs(factor - other) > 1e-6:
                raise TableError(f"--speculative-config: the draft rotates with a factor of {other:g}, the model with {factor:g}")
            self._ratio[:len(own)] = found / own
        self.alike = bool((self._ratio == 1).all())

    def plan(self, digest):
        return serving().plans[digest].of_draft(self._sizes, self._ratio)


def prepare(runner):
    """Check the loaded model against the table and put it under it. TableError: with the reason."""
    from vllm.distributed import get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size

    table, config = serving().table, runner.model_config.hf_text_config
    parents = _attention_modules(runner.model)
    moving = {name: parent for name, (parent, layer) in parents.items() if _moves(config, parent, layer)}
    heated = not moving  # layers without positions: a table is a temperature
    if heated:
        moving = {name: parent for name, (parent, layer) in parents.items() if _sees_all(layer) and not _shares(layer)}
        _check_heated(config, table, moving, len(parents))
    for name, parent in moving.items():
        if _shares(parent.attn) and parent.attn.kv_sharing_target_layer_name not in moving:
            raise TableError(f"layer {name} moves and has the keys of {parent.attn.kv_sharing_target_layer_name}, which does not")
    one = next(iter(moving.values()))
    size = get_tensor_model_parallel_world_size()
    head_dim = one.attn.head_size
    sizes = {"n_layers": config.num_hidden_layers, "n_heads": config.num_attention_heads,
             # Asked of the layer: Gemma 4's config has no such number of the whole model.
             "n_kv_heads": getattr(one, "total_num_kv_heads", 0) or getattr(config, "num_key_value_heads", config.num_attention_heads),
             "head_dim": head_dim}
    if serving().formula:
        if not heated and _rope_type(config) in LENGTH_DEPENDENT:
            raise TableError("DPE_PLAN=auto: the frequencies of this model depend on the length of the text; dpe-export --method dpe "
                             "makes its table, for DPE_TABLE")
        rotation = ([], 1.0) if heated else _rotation(one.rotary_emb)
        made = formula_table(serving().trained_length, max(serving().entries), *rotation, config.model_type, **sizes)
        serving().bind(made, [serving().entries[entry.evaluated_length] for entry in made.entries])
    if table is not None:
        table.check_model(config.model_type, **sizes)
        _check_fingerprint(runner.model_config)
        if not heated:
            _check_rotation(config, one.rotary_emb)
    numbers = {name: _number(name) for name in parents}
    moved = Moved(runner, {name: numbers[name] for name in moving}, numbers, None if heated else _order(one.rotary_emb, head_dim),
                  get_tensor_model_parallel_rank(), size)
    moved.sizes, moved.one = sizes, one.attn
    moved.still = head_dim // 2 - (0 if heated else _pairs(one.rotary_emb))
    moved.factors = {name: float(parent.rotary_emb.cos_sin_cache[0, 0]) for name, (parent, _) in parents.items()
                     if name not in moving and isinstance(getattr(parent, "rotary_emb", None), RotaryEmbeddingBase)}
    draft = runner.get_draft_model()
    of_draft = {} if draft is None else _attention_modules(draft)
    if of_draft and (heated or any(_shares(layer) for _, layer in of_draft.values())):
        raise TableError("--speculative-config: drafts with layers under a temperature alone, or that have the keys of the model's, were not "
                         "tried; expected drafts without a model (ngram, suffix)")
    if of_draft:
        config = runner.speculative_config.draft_model_config.hf_text_config
        more = {name: parent for name, (parent, layer) in of_draft.items() if _moves(config, parent, layer)}
        moved.draft = Draft(moved, of_draft, more, one) if more else Moved(runner, {}, dict.fromkeys(of_draft, 0), None, 0, 1)
        parents, moving = {**parents, **of_draft}, {**moving, **more}
    _lengthen(parents, {} if heated else moving, runner.max_model_len)
    for rotary in () if heated else {parent.rotary_emb for parent in moving.values()}:
        still = torch.ones_like(rotary.cos_sin_cache[:1])
        still.chunk(2, dim=-1)[1].zero_()
        rotary.cos_sin_cache = torch.cat((rotary.cos_sin_cache, still))
    for parent in () if heated else moving.values():
        parent.rotary_emb = Unrotated(parent.rotary_emb, moved.rows)
        parent.use_fused_qk_norm_rope_gate = False  # Qwen3.5 on cards: one kernel that rotates by itself
    one.attn.impl.take(moved, sorted(serving().entries.values()))
    return moved


def check_plan(runner, table):
    """TableError where a tool's plan, which is of this model by its fingerprint (routes.py), has another shape."""
    moved = runner.dpe_moved
    table.check_model(table.model_type, **moved.sizes)
    if (table.n_pairs if not table.applied_inv_freq.any() else table.n_pairs - table.rotating_pairs()) != moved.still:
        raise TableError(f"expected a plan in which {moved.still} pairs of a head do not rotate, found "
                         f"{table.n_pairs - table.rotating_pairs()}")


def _attention_modules(model):
    """Attention layers by name: the module that holds each, and the layer."""
    found = {}
    for parent in model.modules():
        for child in parent.children():
            if isinstance(child, AttentionLayer):
                found[child.layer_name] = (parent, child)
    return found


def _number(name):
    from vllm.model_executor.models.utils import extract_layer_index

    return extract_layer_index(name)


def _moves(config, parent, layer):
    """The rule of dpe_config_moves (engine/model/config/config.h): full attention with rotation."""
    if layer.attn_type in (AttentionType.ENCODER, AttentionType.ENCODER_ONLY, AttentionType.ENCODER_DECODER):
        raise TableError(f"layer {layer.layer_name} is one of an encoder, whose attention has no order of keys")
    if not _sees_all(layer) or not isinstance(getattr(parent, "rotary_emb", None), RotaryEmbeddingBase):
        return False
    if getattr(layer.impl, "alibi_slopes", None) is not None:
        raise TableError(f"layer {layer.layer_name} has ALiBi slopes")
    if hasattr(parent, "query_layernorm"):
        raise TableError(f"layer {layer.layer_name} normalises queries and keys after their rotation ({config.model_type}), and queries and "
                         "keys reach a plan here before it: use dpe_transformers, or dpe-serve")
    if config.model_type in WINDOWS_ROTATE and getattr(config, "sliding_window", None):
        return False
    rotates = getattr(config, "no_rope_layers", None)  # SmolLM3: 1 in those that rotate
    return not rotates or bool(rotates[_number(layer.layer_name)])


def _sees_all(layer):
    """Not a window, nor chunks (Llama 4)."""
    return layer.sliding_window is None and not isinstance(layer, ChunkedLocalAttention)


def _shares(layer):
    """Whether it has the keys of another layer (Gemma 4)."""
    return layer.kv_sharing_target_layer_name is not None


def _check_heated(config, table, heated, layers):
    """TableError unless there are layers without positions, and a table of a temperature alone for them."""
    if not heated:
        raise TableError(f"a {config.model_type} model: no full-attention layer with rotary positions was found, nor one without, so there "
                         "is nothing that a table could change (layers with MLA, or of a model in another form, are not)")
    kind = f"a {config.model_type} model: {len(heated)} of its {layers} layers see all keys and have no positions"
    if table is not None and any(entry.applied_inv_freq.any() for entry in table.entries):
        raise TableError(f"{kind}: expected a table of a temperature alone, as dpe-calibrate and dpe-export make for it; {table.path} rotates "
                         "pairs of a head")


def _check_fingerprint(model_config):
    table, folder = serving().table, folder_of(model_config)
    if getattr(model_config, "quantization", None) is not None:
        logger.warning("DPE: %s is quantised (%s): of the table's model (fingerprint %.12s) the shape alone was compared",
                       folder, model_config.quantization, table.fingerprint)
        return
    try:
        found = fingerprint(folder)
    except OSError as error:
        logger.warning("DPE: the model's fingerprint was not compared, only its shape: %s", error)
        return
    if found != table.fingerprint and not os.environ.get("DPE_OTHER_MODEL"):
        raise TableError(f"{serving().path}: made for a model with the fingerprint {table.fingerprint[:12]}, {folder} has "
                         f"{found[:12]}: other weights of the same shape. DPE_OTHER_MODEL=1 runs it all the same")
    if found != table.fingerprint:
        logger.warning("DPE: the table was made for other weights of this shape (fingerprint %.12s, here %.12s); "
                       "dpe-eval check TABLE -m FOLDER measures whether it holds there", table.fingerprint, found)


def _check_rotation(config, rotary):
    """TableError where the model rotates otherwise than the table's."""
    table, half = serving().table, _pairs(rotary)
    if half != table.rotating_pairs():
        raise TableError(f"{table.path} was made for a model that rotates {table.rotating_pairs()} pairs of a head, this one "
                         f"rotates {half}")
    if _rope_type(config) not in LENGTH_DEPENDENT:
        table.check_frequencies(*_rotation(rotary))


def _rope_type(config):
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return scaling.get("full_attention", scaling).get("rope_type", "default")


def _pairs(rotary):
    """How many pairs rotate: of Gemma 4's proportional rotation the others turn by 0."""
    return getattr(rotary, "rope_angles", rotary.rotary_dim // 2)


def _rotation(rotary):
    """Frequencies of the pairs that rotate, and the factor on their cosines."""
    cos, sin = (x[:_pairs(rotary)] for x in rotary._compute_cos_sin_cache()[1].double().cpu().chunk(2))
    return torch.atan2(sin, cos).numpy(), float(torch.hypot(cos, sin).mean())


def _order(rotary, head_dim):
    """Order of a head's components (dpe_attention: pair j is j and j + head_dim / 2, those that do not rotate last), None:
    the model has it."""
    half = rotary.rotary_dim // 2
    rotating, still = list(range(2 * half)), list(range(2 * half, head_dim))
    first, second = (rotating[:half], rotating[half:]) if rotary.is_neox_style else (rotating[::2], rotating[1::2])
    order = first + still[:len(still) // 2] + second + still[len(still) // 2:]
    return None if order == list(range(head_dim)) else order


def _lengthen(parents, moving, longest):
    """Layers rotate by the model's own table of cosines: those that do not move every token, the others texts without an entry.
    vLLM reads past the end of one that is too short, which gives NaN without a word, so it is made as long as these texts can be."""
    for name, (parent, _) in parents.items():
        rotary = getattr(parent, "rotary_emb", None)
        length = serving().trained_length if name in moving and serving().entries else longest
        if not isinstance(rotary, RotaryEmbeddingBase) or len(rotary.cos_sin_cache) >= length:
            continue
        if type(rotary)._compute_cos_sin_cache is not RotaryEmbeddingBase._compute_cos_sin_cache:
            if name in moving:
                continue
            raise TableError(f"layer {name} does not move and has a table of cosines for {len(rotary.cos_sin_cache)} tokens "
                             f"({type(rotary).__name__}), --max-model-len is {length}: expected at most that")
        known = rotary.cos_sin_cache
        angles = torch.arange(len(known), length, dtype=torch.float)[:, None] * rotary._compute_inv_freq(rotary.base).cpu()
        more = torch.cat((angles.cos(), angles.sin()), dim=-1).to(known)
        rotary.cos_sin_cache = torch.cat((known, more))
