"""What the plugin changes in vLLM, each with the name that it has there in 0.32 and 0.33, which do not differ in what it uses.
vLLM has no other seam for these:

* EngineArgs.create_engine_config: settings that a table needs, and refusals before anything is loaded.
* Request.__init__: the prefix cache's salt, from the entry, before the first block is hashed.
* InputProcessor.process_inputs: which entry each answer has, for the log and GET /v1/dpe; and names of ours that a client sends.
* GPUModelRunner.load_model: a backend sees tokens; which texts they belong to is known to the runner. The model is put under the
  table before vLLM compiles it.
"""
import functools
import inspect
import os

from dpe_attention import NOT_MEASURED, TableError, trained_length_of

from dpe_vllm.serving import logger, names_of_ours, norms_asked, plan_asked, serving, use

RUNNERS = []  # of this process; more than one only where a test makes several engines
TESTED = ("0.32", "0.33")
CACHES = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2")
# Drafts that have no keys, and those whose keys a plan moves (model.py).
DRAFTS = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "eagle", "eagle3", "mtp", "draft_model")


def _wrap(owner, name, around):
    """owner.name becomes around(original, ...), once."""
    original = getattr(owner, name)
    if getattr(original, "dpe", False):
        return

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return around(original, *args, **kwargs)

    wrapped.dpe = True
    setattr(owner, name, wrapped)


def install():
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if not vllm.__version__.startswith(TESTED):
        logger.warning("DPE: tested with vLLM %s, this is %s", " and ".join(TESTED), vllm.__version__)
    # Lengths above max_position_embeddings are what the table is for; the plugin sees to the positions (model.py).
    os.environ.setdefault("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner as Runner

        register_backend(AttentionBackendEnum.CPU_ATTN, "dpe_vllm.backend.CpuBackend")
    else:
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner as Runner

        register_backend(AttentionBackendEnum.CUSTOM, "dpe_vllm.cards.CudaBackend")
    _wrap(EngineArgs, "create_engine_config", _create_engine_config)
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.request import Request

    _wrap(Request, "__init__", _request)
    _wrap(InputProcessor, "process_inputs", _process_inputs)
    _wrap(Runner, "load_model", _load_model)


def _create_engine_config(original, args, *rest, **kwargs):
    from vllm.platforms import current_platform

    state = serving()
    refuse_arguments(args)
    set_by_us = {}
    if args.max_model_len is None and state.table is not None:
        args.max_model_len = set_by_us["max_model_len"] = state.table.evaluated_length
    if state.formula and args.max_model_len is None:
        raise TableError("DPE_PLAN=auto: say with --max-model-len how long texts may be")
    # A compiled model is kept under a name made from the settings: it is another one than without the plugin.
    args.additional_config = dict(args.additional_config or {}, dpe=1)
    if not current_platform.is_cpu() and args.attention_backend is None:
        args.attention_backend = set_by_us["attention_backend"] = "CUSTOM"
    if state.engine:
        args.worker_extension_cls = "dpe_vllm.worker.Worker"
        if not args.enforce_eager:  # plans and norms are asked for while the model runs
            args.enforce_eager = set_by_us["enforce_eager"] = True
    config = original(args, *rest, **kwargs)
    refuse_config(config)
    model = config.model_config
    if getattr(model.hf_text_config, "attn_temperature_tuning", False):
        # Llama 4's own factor on queries, which vLLM leaves out where texts are short: tables are made with it.
        model.override_generation_config = {"attn_temperature_tuning": True, **model.override_generation_config}
    draft = config.speculative_config and config.speculative_config.draft_model_config
    if draft and config.speculative_config.max_model_len is None:
        draft.max_model_len = config.model_config.max_model_len  # a plan takes it as far as the model
    if state.formula:
        # Processes that vLLM starts from here on read it.
        os.environ["DPE_PLAN"] = f"auto {trained_length_of(config.model_config.hf_text_config)} {config.model_config.max_model_len}"
        state = use(None, os.environ["DPE_PLAN"])
    _announce(state, config, set_by_us)
    return config


def _announce(state, config, set_by_us):
    parts = []
    if state.entries:
        lengths = ", ".join(str(length) for length in sorted(state.entries))
        parts.append(("the formula" if state.formula else f"table {state.path}") +
                     f", entries for {lengths} tokens, up to {state.trained_length} the model's own path" +
                     (f"; {NOT_MEASURED}" if state.formula else ""))
    if state.engine:
        parts.append("an engine that takes the plans of tools")
    logger.info("DPE: %s; %s", "; ".join(parts),
                "set " + ", ".join(f"{name}={value}" for name, value in set_by_us.items())
                if set_by_us else "no setting changed")
    if state.table is not None and config.model_config.max_model_len <= state.table.trained_length:
        logger.warning("DPE: --max-model-len %d is within the trained length, %d: the table is never used",
                       config.model_config.max_model_len, state.table.trained_length)


def refuse_arguments(args):
    """What vLLM would take long to load before it is refused."""
    if str(args.kv_cache_dtype) not in CACHES:
        raise TableError(f"--kv-cache-dtype {args.kv_cache_dtype}: expected one of {', '.join(CACHES)}, which DPE can read")
    if serving().engine and args.data_parallel_size > 1:
        raise TableError(f"--data-parallel-size {args.data_parallel_size}: a tool's plan goes to one engine (DPE_ENGINE=1): start "
                         "a server for each")
    if serving().engine and args._api_process_count > 1:
        raise TableError(f"--api-server-count {args._api_process_count}: of several, one would forget a plan that runs texts of "
                         "another (DPE_ENGINE=1): leave it out")
    if serving().engine and args.worker_extension_cls:
        raise TableError(f"--worker-extension-cls {args.worker_extension_cls}: DPE_ENGINE=1 has one of its own")


def refuse_config(config):
    model, parallel, speculative = config.model_config, config.parallel_config, config.speculative_config
    if getattr(model, "use_mla", False):
        raise TableError(f"a {model.hf_text_config.model_type} model has MLA attention, whose keys DPE cannot move")
    if speculative is not None and speculative.method not in DRAFTS:
        raise TableError(f"--speculative-config with method {speculative.method!r}: a plan does not reach the positions of these drafts; "
                         f"expected one of {', '.join(DRAFTS)}")
    for name, what in (("decode_context_parallel_size", "DCP"), ("prefill_context_parallel_size", "PCP")):
        if getattr(parallel, name, 1) > 1:
            raise TableError(f"--{name.replace('_', '-')} {getattr(parallel, name)}: {what} divides keys by position, and DPE "
                             "needs all keys of a text on one card; use tensor parallelism")
    if getattr(parallel, "enable_dbo", False) or getattr(parallel, "use_ubatching", False):
        raise TableError("--enable-dbo: DPE does not divide a batch")


def tokens_of(sampling_params, pooling_params):
    """What may be generated."""
    return 1 if sampling_params is None else sampling_params.max_tokens


def _request(original, request, *args, **kwargs):
    names = inspect.signature(original).bind(request, *args, **kwargs).arguments
    ids, embeds = names.get("prompt_token_ids"), names.get("prompt_embeds")
    prompt = len(ids) if ids is not None else len(embeds)
    params = names.get("sampling_params")
    digest = serving().digest(prompt, tokens_of(params, names.get("pooling_params")), plan_asked(params))
    names.pop("self")
    names["cache_salt"] = serving().salt(digest, names.get("cache_salt"))
    original(request, **names)


def _process_inputs(original, *args, **kwargs):
    from vllm.exceptions import VLLMValidationError

    found = names_of_ours(getattr(inspect.signature(original).bind(*args, **kwargs).arguments["params"], "extra_args", None))
    if found:
        raise VLLMValidationError(f"{', '.join(found)}: only the routes /v1/dpe/completions and /v1/dpe/norms of an engine set these; "
                                  "leave them out")
    request = original(*args, **kwargs)
    if plan_asked(request.sampling_params) is not None:
        return request
    ids, embeds = request.prompt_token_ids, request.prompt_embeds
    prompt = len(ids) if ids is not None else len(embeds)
    new = tokens_of(request.sampling_params, request.pooling_params)
    entry = serving().entry(prompt, new)
    if entry is not None and request.mm_features:
        raise VLLMValidationError(f"images in a text of {prompt} + {new} tokens: no plan was made for their positions; expected at most "
                                  f"{serving().trained_length} tokens, or a text without images")
    serving().remember(request.request_id, entry)
    logger.debug("DPE: request %s of %d + %d tokens: %s", request.request_id, prompt, new or 0,
                 "the model's own path" if entry is None else f"entry for {entry} tokens")
    return request


def _load_model(original, runner, *args, **kwargs):
    from dpe_vllm.model import prepare

    original(runner, *args, **kwargs)
    runner.dpe_moved = prepare(runner)
    RUNNERS.append(runner)


def plans_of_batch(runner, count):
    """Digest of the plan of each text of the batch, in its order, and what is asked of its norms (worker.py); texts of a warm-up
    run are not known, and the model's own path runs them."""
    plans, norms = [], []
    for name in runner.input_batch.req_ids[:count]:
        text = runner.requests[name]
        params = text.sampling_params
        digest = serving().digest(text.num_prompt_tokens, tokens_of(params, text.pooling_params), plan_asked(params))
        plans.append(digest if digest in serving().plans else None)
        norms.append(None if plans[-1] is None else norms_asked(params))
    none = [None] * (count - len(plans))
    return plans + none, norms + none

