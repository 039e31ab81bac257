"""Runs a model of `transformers` 5 under a DPE table; MODEL_TYPES are the families it was tested with.

    model = AutoModelForCausalLM.from_pretrained(FOLDER)
    dpe_transformers.apply(model, "TABLE.h5")           # or its JSON form; length=131072 in its place: the formula
    model.generate(...)                                 # remove(model) undoes it

Which entry of the table runs a text is decided once, when its first tokens are read: by the tokens of
the prompt and of what generate() may add, or by what expect(model, tokens) announced. A text of at
most the trained length is run by the model's own attention and rotation, unchanged.

A table holds for the full-attention layers that rotate; where none does, it is a temperature of those without positions. Under an
entry the others (sliding windows, recurrent layers, else layers without positions) stay as transformers computes them. Three documented seams, no source copies:
* The attention interface: "dpe" is registered for attention and for its mask. An attention module reads
  from its config which attention it calls; those of the layers that move are given a copy that names "dpe".
  Scaling, soft caps and sinks reach it as arguments. What it needs besides lies on the modules, so that
  several models with several tables live side by side.
* DPE decides by distance how a key is rotated, so queries and keys must arrive unrotated, and be
  cached so. A hook gives the modules that move cosines of 1 and sines of 0: the model's own rotation then
  changes nothing. The order of a head's components is found by rotating a unit matrix with it.
* A hook before the model's forward pass sees whether a text begins, and switches between the entries
  and the model's own attention. generate() is wrapped, to know how long a text can become.
"""
import copy
import inspect
import json
import logging
import os
import sys
import warnings

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from dpe_attention import NOT_MEASURED, Attention, Table, TableError, fingerprint, formula_table, load_table, own_config, \
    trained_length_of

NAME = "dpe"
MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "phi3", "olmo2", "olmo3", "granite",
               "smollm3", "glm4", "ministral3", "gemma2", "gemma3_text", "gpt_oss", "qwen3_5_text", "qwen3_5_moe_text",
               "qwen3_next", "olmo_hybrid", "glm4_moe", "minimax_m2", "seed_oss", "ernie4_5", "exaone4", "cohere2",
               "hunyuan_v1_dense", "llama4_text", "gemma4_text")
# Their frequencies depend on the length of the text, so the checkpoint has none to compare.
LENGTH_DEPENDENT = ("dynamic", "longrope")


def keep_mask(mask_function=causal_mask_function, config=None, **kwargs):
    """The mask of this attention: none, because it is causal on its own and knows the padding (Switch). The
    masks of windowed layers are those of the model's own attention."""
    if mask_function is causal_mask_function:
        return None
    native = AttentionMaskInterface()[config.dpe_native]
    return native(mask_function=mask_function, config=config, **kwargs)


def _cache_of(values):
    """The cache among arguments, or in an output (no dict: none). Since transformers 5.24 it is `cache`; callers may use the
    older name for some time."""
    named = values if isinstance(values, dict) else {}
    cache = named.get("cache")
    return named.get("past_key_values") if cache is None else cache


def _paddings(attention_mask, batch, tokens):
    """Padding tokens on the left of each text of a batch."""
    if attention_mask is None:
        return [0] * batch
    shape = tuple(getattr(attention_mask, "shape", ()))
    if len(shape) != 2 or shape[1] != tokens:
        raise NotImplementedError(f"DPE attention takes a mask [batch, tokens = {tokens}], found "
                                  f"{shape or type(attention_mask).__name__}: prepared masks and static "
                                  "caches are not supported")
    real = attention_mask.bool()
    if (real[:, :-1] & ~real[:, 1:]).any():
        raise NotImplementedError("DPE attention takes padding on the left only "
                                  "(tokenizer.padding_side = 'left')")
    return (~real).sum(dim=1).tolist()


def _check_positions(position_ids, paddings, rows, tokens):
    """The positions of the model must be those that follow from the cache; padding has any."""
    if position_ids is None:
        return
    if position_ids.ndim == 3:  # one for each axis of an image: a text has the same on all
        if (position_ids != position_ids[:1]).any():
            raise NotImplementedError("DPE attention reads text only: position_ids differ from axis to axis")
        position_ids = position_ids[0]
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


def _check_text(kwargs):
    """Tokens of an image see each other in both directions in some models."""
    types = kwargs.get("token_type_ids")
    if kwargs.get("pixel_values") is not None or (types is not None and types.any()):
        raise NotImplementedError("DPE attention reads text only, without images")


def dpe_attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, softcap=None,
                          s_aux=None, **kwargs):
    """The registered function: query [batch, heads, rows, head_dim], key and value [batch, kv heads,
    tokens, head_dim] with all of the cache; s_aux: the sink of each head. Returns [batch, rows, heads,
    head_dim] and no weights."""
    switch = getattr(module, "dpe_switch", None)
    if switch is None or switch.entry is None:
        raise RuntimeError("this model has no DPE table: call dpe_transformers.apply(model, TABLE), "
                           "which also selects the attention")
    if dropout:
        raise NotImplementedError("DPE attention has no dropout: set attention_dropout to 0")
    rows, tokens = query.shape[2], key.shape[2]
    if tokens != switch.tokens:
        raise NotImplementedError(f"DPE attention: the cache gives {tokens} keys for a text of "
                                  f"{switch.tokens} tokens (static caches are not supported)")

    def core(q, k, v):
        return switch.cores[switch.entry](q, k, v, module.layer_idx, scaling, softcap, s_aux, getattr(module, "dpe_late", None))

    if not any(switch.paddings):
        return core(query, key, value).transpose(1, 2).contiguous(), None
    out = torch.zeros_like(query)
    for text, padding in enumerate(switch.paddings):
        skip = max(0, padding - (tokens - rows))  # queries that are padding themselves stay 0
        if skip < rows:
            one = slice(text, text + 1)
            out[one, :, skip:] = core(query[one, :, skip:], key[one, :, padding:], value[one, :, padding:])
    return out.transpose(1, 2).contiguous(), None


def decoder_of(model):
    """The module that holds the layers."""
    text = model.get_decoder()
    return text if hasattr(text, "layers") else text.model  # Llama 4's own answer holds the head too


def _is_windowed(config, layer):
    """By transformers' rule: what layer_types says, else every layer when there is a window."""
    types = getattr(config, "layer_types", None)
    return types[layer] != "full_attention" if types else getattr(config, "sliding_window", None) is not None


def _window_unused(config):
    """A window as long as the trained length: full attention is what the weights know."""
    window = getattr(config, "sliding_window", None)
    return window is not None and window >= config.max_position_embeddings


def _moving_layers(text):
    """The attention modules of the full-attention layers that rotate; where none does, of all full-attention layers. And
    whether they rotate."""
    modules = [getattr(layer, "self_attn", None) for layer in text.layers]  # None: a recurrent layer
    full = [module for i, module in enumerate(modules) if module is not None and not _is_windowed(text.config, i)]
    # Of these only the layers with windows rotate.
    still = text.rotary_emb is None or text.config.model_type in ("exaone4", "cohere2") and text.config.sliding_window is not None
    rotating = [] if still else [module for module in full if getattr(module, "use_rope", True)]
    return rotating or full, bool(rotating)


def _head_order(text, module):
    """How the model rotates a head at position 1: the component of a head in each place of the table's
    order (pair j is j and j + head_dim / 2, those that do not rotate last), the angle of each pair that
    rotates, and the factor on its cosines. The model's own rotation of a unit matrix says all of it."""
    beside = vars(sys.modules[type(module).__module__])
    rotate = beside.get("apply_rotary_pos_emb") or beside.get("apply_rotary_emb")
    if rotate is None:
        raise TableError(f"a {text.config.model_type} model: this version of transformers has no "
                         "apply_rotary_pos_emb beside its attention, which says how a head rotates")
    dim, device = module.head_dim, next(text.rotary_emb.buffers()).device
    unit = torch.eye(dim, device=device)[None, None]
    positions = torch.ones(1, dim, dtype=torch.long, device=device)
    typed = "layer_type" in inspect.signature(text.rotary_emb.forward).parameters
    turns = text.rotary_emb(unit[0], positions, *(["full_attention"] if typed else []))
    both = list(inspect.signature(rotate).parameters)[:2] == ["q", "k"]
    if torch.is_tensor(turns):  # Llama 4: complex numbers, and heads after tokens
        image = rotate(unit[0, :, :, None], unit[0, :, :, None], turns)[0][:, :, 0]
    else:
        turns = [one.float() for one in turns]
        image = rotate(unit, unit, *turns)[0][0] if both else rotate(unit, *turns)[0]
    image = image[0].double().cpu()
    beside = image - torch.diag(image.diagonal())
    first = [c for c in range(dim) if beside[c].max() > 0]   # goes to a cos, b sin; the other to -a sin, b cos
    second = [int(beside[c].argmax()) for c in first]
    still = [c for c in range(dim) if c not in first and c not in second]
    half = len(still) // 2
    order = first + still[:half] + second + still[half:]
    if sorted(order) != list(range(dim)):
        raise TableError(f"a {text.config.model_type} model: its rotation is not one of pairs of components")
    cosines, sines = image[first, first], image[first, second]
    return order, torch.atan2(sines, cosines).numpy(), float(torch.hypot(cosines, sines).mean())


# Norms of rotated heads: of queries, and of keys.
LATE_NORMS = ("query_layernorm", "key_layernorm")


def _part_late(module):
    """Norms after rotation, whose weights differ within a pair. What both components of a pair have in common may come before
    the rotation: each norm's share of that [head_dim], and what is left for rotated queries to be multiplied by."""
    common, left = [], 1.0
    for name in LATE_NORMS:
        weight = getattr(module, name).weight.detach().float()
        half = weight.shape[0] // 2
        both = ((weight ** 2 + weight.roll(half) ** 2) / 2).sqrt()
        common.append(both)
        left = left * torch.where(both > 0, weight / both, torch.zeros_like(both))
    return common, left


def _early(switch, norm, common):
    """The hook that gives a late norm's output with the common part of its weight."""
    def hook(module, args, output):
        if switch.entry is None:
            return output
        x = args[0].float()
        scaled = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        return (scaled * common).to(args[0].dtype)
    return hook


def _kv_heads(config, module):
    """Of a layer that moves: the others may have more."""
    return config.num_attention_heads // module.num_key_value_groups


def _rope_types(text):
    types = text.rotary_emb.rope_type
    return types.values() if isinstance(types, dict) else [types]


def _check_layers(text):
    """Refuses a model that no table can change. Returns the layers that a table is for, and whether these rotate."""
    config = text.config
    if config.model_type not in MODEL_TYPES:
        raise TableError(f"a {config.model_type} model: expected one of {', '.join(MODEL_TYPES)}")
    window = getattr(config, "sliding_window", None)
    if _window_unused(config) and any(_is_windowed(config, layer) for layer in range(len(text.layers))):
        raise TableError(f"a window of {window} tokens, which is no shorter than the "
                         f"{config.max_position_embeddings} of max_position_embeddings: no text in training was longer. "
                         "Load the model with sliding_window=None (and full_attention in layer_types, "
                         "where it has them), so that these layers have full attention")
    moving, rotates = _moving_layers(text)
    if not moving:
        raise TableError("this model has no full-attention layer" + (f" (sliding_window is {window})" if window is not None else "") +
                         ", so there is nothing that a table could change")
    if not all(getattr(module, "is_causal", True) for module in moving):
        raise TableError("a model with bidirectional attention: DPE attention is causal")
    return moving, rotates


def _check_model(model, table):
    """Refuses what cannot be run under the table. Returns the order of a head's components."""
    text = decoder_of(model)
    config, (moving, rotates) = text.config, _check_layers(text)
    table.check_model(config.model_type, n_layers=len(text.layers), n_heads=config.num_attention_heads,
                      n_kv_heads=_kv_heads(config, moving[0]), head_dim=moving[0].head_dim)
    if not rotates:
        if any(entry.applied_inv_freq.any() for entry in table.entries):
            raise TableError("no full-attention layer of this model rotates: expected a table of a temperature alone, found one that rotates pairs")
        return None
    order, frequencies, factor = _head_order(text, moving[0])
    if len(frequencies) != table.rotating_pairs():
        raise TableError(f"{table.path} was made for a model that rotates {table.rotating_pairs()} pairs of a "
                         f"head, this one rotates {len(frequencies)}")
    if not set(_rope_types(text)) & set(LENGTH_DEPENDENT):
        table.check_frequencies(frequencies, factor)
    return None if order == list(range(len(order))) else order


def _formula(model, length):
    """A table of the formula's plans for the model, up to `length` tokens."""
    text = decoder_of(model)
    config, (moving, rotates) = text.config, _check_layers(text)
    if rotates and set(_rope_types(text)) & set(LENGTH_DEPENDENT):
        raise TableError("the frequencies of this model depend on the length of the text: dpe-export --method dpe makes its table")
    _, frequencies, factor = _head_order(text, moving[0]) if rotates else (None, [], 1.0)
    trained = trained_length_of(config)
    table = formula_table(trained, length, frequencies, factor, config.model_type, n_layers=len(text.layers),
                          n_heads=config.num_attention_heads, n_kv_heads=_kv_heads(config, moving[0]), head_dim=moving[0].head_dim)
    warnings.warn(f"texts of more than {trained} tokens, up to {length}, run under the formula: {NOT_MEASURED}", stacklevel=3)
    return table


class Switch:
    """Chooses the entry for each text, and puts the model under it. Lies on the base model."""

    def __init__(self, model, table, order, options):
        self.model, self.base, self.table = model, model.base_model, table
        self.text = decoder_of(model)
        self.cores = {entry.evaluated_length: Attention(entry, order=order, **options)
                      for entry in table.entries}
        self.moving = _moving_layers(self.text)[0]
        self.native = self.text.config
        self.announced = 0      # by expect(): texts that begin from now on
        self.generating = 0     # by generate(): the text that begins next
        self.entry = None       # evaluated_length of the active one; None: the model's own attention
        self.tokens, self.paddings = 0, []  # of the texts that are being read
        self.warned = False
        self.hooks = [self.base.register_forward_pre_hook(self._before, with_kwargs=True),
                      self.base.register_forward_hook(self._after)]
        for module in self.moving:
            module.dpe_switch = self
            if all(hasattr(module, name) for name in LATE_NORMS):
                common, module.dpe_late = _part_late(module)
                self.hooks += [norm.register_forward_hook(_early(self, norm, both))
                               for norm, both in zip((getattr(module, name) for name in LATE_NORMS), common)]
            self.hooks.append(module.register_forward_pre_hook(self._unrotate, with_kwargs=True))
        self.generate = model.generate
        model.generate = self._generate

    def remove(self):
        self._activate(None)
        for hook in self.hooks:
            hook.remove()
        for module in self.moving:
            del module.dpe_switch
            module.__dict__.pop("dpe_late", None)
        del self.model.generate  # the class has its own

    def _activate(self, entry):
        if (entry is None) != (self.entry is None):
            config = self.native
            if entry is not None:
                config = copy.copy(config)
                config.dpe_native = config._attn_implementation
                config._attn_implementation = NAME
            for module in self.moving:
                module.config = config
            # The model makes one mask for all full-attention layers: its own, when some of them do not move.
            full = [layer for layer in range(len(self.text.layers)) if not _is_windowed(self.native, layer)]
            if len(full) == len(self.moving):
                self.text.config = config
        self.entry = entry

    def _unrotate(self, module, args, kwargs):
        given = kwargs.get("position_embeddings")
        if self.entry is None or given is None:
            return None
        if torch.is_tensor(given):  # cosines and sines as complex numbers
            return args, dict(kwargs, position_embeddings=torch.ones_like(given))
        return args, dict(kwargs, position_embeddings=tuple(make(one) for make, one in zip((torch.ones_like, torch.zeros_like), given)))

    def _choose(self, tokens):
        if tokens > self.table.evaluated_length:
            warnings.warn(f"this text may reach {tokens} tokens, the table was made for "
                          f"{self.table.evaluated_length}: larger distances were not measured")
        entry = self.table.choose(tokens)
        return None if entry is None else entry.evaluated_length

    def _before(self, module, args, kwargs):
        cache = _cache_of(kwargs)
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
        if self.entry is not None:
            mask, self.tokens = kwargs.get("attention_mask"), cached + rows
            self.paddings = _paddings(mask, ids.shape[0], self.tokens)
            _check_positions(kwargs.get("position_ids"), self.paddings, rows, self.tokens)
            _check_text(kwargs)
        if cache is not None:
            cache.dpe_entry = self.entry

    def _after(self, module, args, output):
        cache = _cache_of(output)
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


def _check_weights(model, table):
    """A table may hold on other weights of this shape, another quantisation or a fine-tune, and may not: a warning. A model
    that comes from no folder of this machine is not compared."""
    folder = getattr(model.config, "_name_or_path", None) or ""
    try:
        found = fingerprint(folder) if os.path.isdir(folder) else table.fingerprint
    except OSError:
        return  # not safetensors
    if found != table.fingerprint:
        warnings.warn(f"the table was made for a model with the fingerprint {table.fingerprint[:12]}, {folder} has {found[:12]}: "
                      f"other weights of the same shape. dpe-eval check TABLE -m {folder} measures whether it holds there", stacklevel=3)


def apply(model, table=None, length=None, **options):
    """Run `model` under `table` (a path, or a Table), or without one under the formula for texts of up to `length`
    tokens, of which nothing was measured. TableError when the table is not valid or was
    made for another kind of model; then the model is unchanged. `options` go to Attention
    (query_block, key_block, compute). Returns the model. A cache filled before does not fit any more.
    """
    if (table is None) == (length is None):
        raise TypeError("apply: expected a table, or a length in its place")
    if table is None:
        return _apply(model, _formula(model, length), **options)
    table = table if isinstance(table, Table) else load_table(table)
    _apply(model, table, **options)
    _check_weights(model, table)
    return model


def _apply(model, table, **options):
    order = _check_model(model, table)
    remove(model)
    AttentionInterface.register(NAME, dpe_attention_forward)
    AttentionMaskInterface.register(NAME, keep_mask)
    model.base_model.dpe_switch = Switch(model, table, order, options)
    for entry in table.entries:
        if entry.evidence():
            logging.getLogger("dpe_transformers").info("the table %s", entry.evidence())
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
    table = load_table(os.path.join(folder, "config.json"))
    values = json.loads(own_config(folder))
    config = type(AutoConfig.for_model(values["model_type"])).from_dict(values)
    text = config.get_text_config()
    if getattr(text, "layer_types", None) is None and _window_unused(text):
        text.sliding_window = None
    text_and_images = config.get_text_config() is not config
    auto = AutoModelForImageTextToText if text_and_images else AutoModelForCausalLM
    model = auto.from_pretrained(folder, config=config, **kwargs)
    return _apply(model, table)  # config.json is not the model's own


def remove(model):
    """Undo apply()."""
    switch = _switch(model)
    if switch is not None:
        switch.remove()
        del model.base_model.dpe_switch
    return model
