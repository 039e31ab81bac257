"""Runs a Llama, Mistral or Qwen2 model of `transformers` 5 under a DPE table.

    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    dpe_transformers.apply(model, "TABLE.h5")           # or its JSON form
    model.generate(...)                                 # remove(model) undoes it

Which entry of the table runs a text is decided once, when its first tokens are read: by the tokens of
the prompt and of what generate() may add, or by what expect(model, tokens) announced. A text of at
most the trained length is run by the model's own attention and rotation, unchanged.

Three documented seams, no source copies:
* The attention interface: "dpe" is registered for attention and for its mask, and the model is
  switched to it. What it needs lies on the attention modules, so that several models with several
  tables live side by side.
* DPE decides by distance how a key is rotated, so queries and keys must arrive unrotated, and be
  cached so. The model's rotary module is exchanged for one that answers cos = 1, sin = 0: the
  model's own rotation then changes nothing.
* A hook before the model's forward pass sees whether a text begins, and switches between the entries
  and the model's own attention. generate() is wrapped, to know how long a text can become.
"""
import json
import os
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from dpe_attention import Attention, Table, TableError, load_table

NAME = "dpe"
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "olmo2")
# Their frequencies depend on the length of the text, so the checkpoint has none to compare.
LENGTH_DEPENDENT = ("dynamic", "longrope")


class Unrotated(torch.nn.Module):
    """Stands in for a model's rotary module."""

    def __init__(self, native):
        super().__init__()
        self.native = native

    def forward(self, x, position_ids):
        head_dim = 2 * self.native.inv_freq.shape[-1]
        cos = torch.ones(*position_ids.shape, head_dim, dtype=x.dtype, device=x.device)
        return cos, torch.zeros_like(cos)


def keep_mask(attention_mask=None, mask_function=causal_mask_function, **kwargs):
    """The mask of this attention: the caller's [batch, tokens] itself, because the attention is
    causal on its own and needs of it only how much padding stands on the left; None without any."""
    if mask_function is not causal_mask_function:
        raise NotImplementedError("DPE attention is causal over one text: packed sequences, sliding "
                                  "windows and custom masks are not supported")
    return None if attention_mask is None or attention_mask.all() else attention_mask


def _paddings(attention_mask, batch, tokens):
    """Padding tokens on the left of each text of a batch."""
    if attention_mask is None:
        return [0] * batch
    if attention_mask.ndim != 2 or attention_mask.shape[1] != tokens:
        raise NotImplementedError(f"DPE attention takes a mask [batch, tokens = {tokens}], found "
                                  f"{tuple(attention_mask.shape)}: prepared masks and static caches "
                                  "are not supported")
    real = attention_mask.bool()
    if (real[:, :-1] & ~real[:, 1:]).any():
        raise NotImplementedError("DPE attention takes padding on the left only "
                                  "(tokenizer.padding_side = 'left')")
    return (~real).sum(dim=1).tolist()


def _check_positions(position_ids, paddings, rows, tokens):
    """The positions of the model must be those that follow from the cache; padding has any."""
    if position_ids is None:
        return
    if position_ids.shape[-1] != rows or position_ids.shape[0] not in (1, len(paddings)):
        raise NotImplementedError(f"DPE attention: position_ids have shape "
                                  f"{tuple(position_ids.shape)}, expected {rows} for each text")
    expected = torch.arange(tokens - rows, tokens, device=position_ids.device)
    for text, padding in zip(position_ids.expand(len(paddings), -1), paddings):
        real = expected >= padding
        if (text != expected - padding)[real].any():
            raise NotImplementedError("DPE attention: position_ids are not those of tokens that "
                                      "follow each other from 0 (static caches, packed or shifted "
                                      "texts are not supported; padded texts need attention_mask)")


def dpe_attention_forward(module, query, key, value, attention_mask, dropout=0.0, position_ids=None,
                          **kwargs):
    """The registered function: query [batch, heads, rows, head_dim], key and value [batch, kv heads,
    tokens, head_dim] with all of the cache. Returns [batch, rows, heads, head_dim] and no weights."""
    core = getattr(module, "dpe_attention", None)
    if core is None:
        raise RuntimeError("this model has no DPE table: call dpe_transformers.apply(model, TABLE), "
                           "which also selects the attention")
    if dropout:
        raise NotImplementedError("DPE attention has no dropout: set attention_dropout to 0")
    batch, rows, tokens = query.shape[0], query.shape[2], key.shape[2]
    paddings = _paddings(attention_mask, batch, tokens)
    if module.layer_idx == 0:  # the other layers see the same
        _check_positions(position_ids, paddings, rows, tokens)
    if not any(paddings):
        return core(query, key, value, module.layer_idx).transpose(1, 2).contiguous(), None
    out = torch.zeros_like(query)
    for text, padding in enumerate(paddings):
        skip = max(0, padding - (tokens - rows))  # queries that are padding themselves stay 0
        if skip < rows:
            one = slice(text, text + 1)
            out[one, :, skip:] = core(query[one, :, skip:], key[one, :, padding:],
                                      value[one, :, padding:], module.layer_idx)
    return out.transpose(1, 2).contiguous(), None


def _check_model(model, table):
    config = model.config
    if config.model_type not in MODEL_TYPES:
        raise TableError(f"a {config.model_type} model: expected one of {', '.join(MODEL_TYPES)}")
    base = model.base_model
    table.check_model(config.model_type, n_layers=config.num_hidden_layers,
                      n_heads=config.num_attention_heads, n_kv_heads=config.num_key_value_heads,
                      head_dim=base.layers[0].self_attn.head_dim)
    window = getattr(config, "sliding_window", None)
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    if sliding or (config.model_type == "mistral" and window is not None):
        raise TableError(f"a model with sliding-window attention ({window}): DPE needs full "
                         "attention; load it with sliding_window=None if its window is no shorter "
                         "than its trained length")
    rotary = base.rotary_emb
    rotary = rotary.native if isinstance(rotary, Unrotated) else rotary
    if rotary.rope_type not in LENGTH_DEPENDENT:
        table.check_frequencies(rotary.inv_freq.double().cpu().numpy(), rotary.attention_scaling)


class Switch:
    """Chooses the entry for each text, and puts the model under it. Lies on the base model."""

    def __init__(self, model, table, options):
        self.model, self.base, self.table = model, model.base_model, table
        self.cores = {entry.evaluated_length: Attention(entry, **options) for entry in table.entries}
        self.native, self.previous = self.base.rotary_emb, model.config._attn_implementation
        self.announced = 0      # by expect(): texts that begin from now on
        self.generating = 0     # by generate(): the text that begins next
        self.entry = None       # evaluated_length of the active one; None: the model's own attention
        self.warned = False
        self.hooks = [self.base.register_forward_pre_hook(self._before, with_kwargs=True),
                      self.base.register_forward_hook(self._after)]
        self.generate = model.generate
        model.generate = self._generate

    def remove(self):
        self._activate(None)
        for hook in self.hooks:
            hook.remove()
        del self.model.generate  # the class has its own

    def _activate(self, entry):
        if entry == self.entry:
            return
        if entry is None:
            self.base.rotary_emb = self.native
            self.model.set_attn_implementation(self.previous)
        else:
            if self.entry is None:
                self.base.rotary_emb = Unrotated(self.native)
                self.model.set_attn_implementation(NAME)
            for layer in self.base.layers:
                layer.self_attn.dpe_attention = self.cores[entry]
        self.entry = entry

    def _choose(self, tokens):
        if tokens > self.table.evaluated_length:
            warnings.warn(f"this text may reach {tokens} tokens, the table was made for "
                          f"{self.table.evaluated_length}: larger distances were not measured")
        entry = self.table.choose(tokens)
        return None if entry is None else entry.evaluated_length

    def _before(self, module, args, kwargs):
        cache = kwargs.get("past_key_values")
        cached = cache.get_seq_length() if cache is not None else 0
        ids = args[0] if args else kwargs.get("input_ids")
        ids = kwargs.get("inputs_embeds") if ids is None else ids
        rows = ids.shape[1]
        if cached == 0:
            self._activate(self._choose(max(rows, self.generating or self.announced)))
            self.warned = False
        elif not hasattr(cache, "dpe_entry"):
            raise NotImplementedError("DPE attention: this cache was filled without the table, or "
                                      "before it: begin the text again")
        else:
            self._activate(cache.dpe_entry)
        if self.entry is None and cached + rows > self.table.trained_length and not self.warned:
            self.warned = True
            warnings.warn(f"a text that began within the trained length, {self.table.trained_length} "
                          "tokens, grew beyond it: call expect(model, tokens) before it begins")
        if cache is not None:
            cache.dpe_entry = self.entry

    def _after(self, module, args, output):
        cache = getattr(output, "past_key_values", None)
        if cache is not None:
            cache.dpe_entry = self.entry

    def _generate(self, inputs=None, **kwargs):
        config = kwargs.get("generation_config") or self.model.generation_config

        def setting(name):
            return kwargs[name] if kwargs.get(name) is not None else getattr(config, name, None)

        prompt = inputs if inputs is not None else kwargs.get("input_ids")
        prompt = kwargs.get("inputs_embeds") if prompt is None else prompt
        tokens = 0 if prompt is None else prompt.shape[1]
        if setting("max_new_tokens") is not None:
            tokens += setting("max_new_tokens")
        elif setting("max_length") is not None:
            tokens = max(tokens + 1, setting("max_length"))
        else:
            tokens += 20  # the default of transformers
        self.generating = max(tokens, self.announced)
        try:
            return self.generate(inputs, **kwargs)
        finally:
            self.generating = 0


def _switch(model):
    return getattr(model.base_model, "dpe_switch", None)


def apply(model, table, **options):
    """Run `model` under `table` (a path, or a Table). TableError when the table is not valid or was
    made for another kind of model; then the model is unchanged. `options` go to Attention
    (query_block, key_block, compute). Returns the model. A cache filled before does not fit any more.
    """
    table = table if isinstance(table, Table) else load_table(table)
    _check_model(model, table)
    remove(model)
    AttentionInterface.register(NAME, dpe_attention_forward)
    AttentionMaskInterface.register(NAME, keep_mask)
    model.base_model.dpe_switch = Switch(model, table, options)
    return model


def expect(model, tokens):
    """Texts that begin from now on may reach `tokens`, prompt and new tokens together, where generate()
    does not say how long they can become: decoding in a loop of one's own, prompts read in parts. 0:
    as many as the first call reads."""
    if _switch(model) is None:
        raise RuntimeError("this model has no DPE table: call dpe_transformers.apply(model, TABLE)")
    _switch(model).announced = tokens


def from_pretrained(folder, **kwargs):
    """The model of a folder whose config.json was written by `dpe-export --format hf`, under its
    table. transformers alone does not know the rope type "dpe" (KeyError). `kwargs` go to
    AutoModelForCausalLM.from_pretrained."""
    path = os.path.join(folder, "config.json")
    table = load_table(path)
    with open(path, encoding="utf-8") as file:
        values = json.load(file)
    for name in ("rope_parameters", "rope_scaling"):
        block = values.get(name)
        if isinstance(block, dict) and block.get("rope_type") == "dpe":
            values[name] = block.get("native")
            if values[name] is None:
                del values[name]
    config = type(AutoConfig.for_model(values["model_type"])).from_dict(values)
    return apply(AutoModelForCausalLM.from_pretrained(folder, config=config, **kwargs), table)


def remove(model):
    """Undo apply()."""
    switch = _switch(model)
    if switch is not None:
        switch.remove()
        del model.base_model.dpe_switch
        for layer in model.base_model.layers:
            if hasattr(layer.self_attn, "dpe_attention"):
                del layer.self_attn.dpe_attention
    return model
