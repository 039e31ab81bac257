"""The routes of the plugin, the entry point vllm.endpoint_plugins; vLLM attaches it only where VLLM_PLUGINS names dpe.

GET /v1/dpe: which table a server runs with, and which entry an answer had. With DPE_ENGINE=1 it also says what tools ask of an
engine (outputs/remote/remote.h), and these run on it: POST /v1/dpe/plan, /v1/dpe/completions, /v1/dpe/norms."""
import asyncio
import math
import os
import uuid

from dpe_attention import TableError, fingerprint, load_table

from dpe_vllm import norms
from dpe_vllm.serving import Asked, file_digest, folder_of, serving


class Refusal(Exception):
    def __init__(self, status, message, code=None):
        super().__init__(message)
        self.status, self.code = status, code


class Engine:
    """What tools ask. client: vLLM's EngineClient."""

    def __init__(self, client, args):
        from vllm import __version__
        from vllm.platforms import current_platform

        model = client.vllm_config.model_config
        self.client, self.model, self.config = client, model, model.hf_text_config
        folder = folder_of(model)
        names = args.served_model_name or [args.model]
        self.about = {
            "engine": f"vllm {__version__}", "name": names[0] if isinstance(names, list) else names,
            "model": fingerprint(folder), "tokenizer": file_digest(os.path.join(folder, "tokenizer.json")),
            "numbers": ", ".join([f"{str(model.dtype).rsplit('.', maxsplit=1)[-1]} weights"]
                                 + ([model.quantization] if model.quantization else [])
                                 + [f"{client.vllm_config.cache_config.cache_dtype} cache", current_platform.device_type]),
            # A text without new tokens has one all the same in vLLM.
            "length": model.max_model_len - 1}
        self.ends = _end_tokens(model)
        self.holding, self.held = asyncio.Lock(), set()

    async def take_plan(self, text):
        """text: a table of one entry as JSON. Its digest is that of the bytes, which the tool compares."""
        taken = load_table("the plan", data=text)
        if len(taken.entries) != 1 or taken.fingerprint != self.about["model"]:
            raise TableError(f"expected one entry, for the model {self.about['model'][:16]}, found {len(taken.entries)} for "
                             f"{taken.fingerprint[:16]}")
        if taken.digest in serving().plans:
            return {"plan": taken.digest, "model": self.about["model"]}
        gone = serving().make_room(len(text))
        if gone is None:
            raise Refusal(503, "texts run under as many plans of tools as this server keeps; try again later", "plans_in_use")
        serving().count(taken.digest, len(text))
        with serving().running(taken.digest):
            await self._hold(taken.digest, text.decode(), gone)
        serving().take(taken.digest, taken.plan)
        return {"plan": taken.digest, "model": self.about["model"]}

    async def _hold(self, digest, *new):
        """The workers make a plan ready before a text under it is scheduled, beside those that texts run under: what does not fit is
        refused here, and never while the model runs. new: of worker.dpe_hold."""
        async with self.holding:
            if digest in self.held and not new:
                return
            beside = [one for one in self.held if one != digest and serving().runs(one)]
            self.held = set(beside)
            for reason, full, held in await self.client.collective_rpc("dpe_hold", args=(digest, beside, *new)):
                if full and beside:
                    raise Refusal(503, f"texts run under {len(beside)} other plans: {reason}; try again later", "plans_in_use")
                if reason:
                    raise TableError(reason)
                self.held = set(held)

    async def complete(self, body):
        """Greedy, as the tools' own engine does it: without the end of sequence."""
        from vllm import SamplingParams

        digest, ids = _plan_and_prompt(body)
        scored, new = bool(body.get("echo")), body.get("max_tokens")
        if type(new) is not int or new < 0 or body.get("temperature") != 0:
            raise Refusal(400, "max_tokens, temperature: expected a whole number of tokens, and 0")
        if not scored and new == 0:
            raise Refusal(400, "max_tokens: expected at least 1, or echo")
        self._check_length(len(ids) + max(new, 1))
        params = SamplingParams(max_tokens=max(new, 1), temperature=0, ignore_eos=True, detokenize=False, logprobs=0,
                                stop_token_ids=[] if body.get("ignore_eos") else self.ends,
                                prompt_logprobs=0 if scored else None, extra_args=Asked(dpe_plan=digest))
        output = await self._run(ids, params)
        made, logs = list(output.outputs[0].token_ids), [None] + [
            step[token].logprob for step, token in zip((output.prompt_logprobs or [])[1:], ids[1:])]
        of_made = [step[token].logprob for step, token in zip(output.outputs[0].logprobs, made)]
        if not all(math.isfinite(one) for one in logs[1:] + of_made):
            raise Refusal(500, "the model gave a logit that is not finite", "not_finite")
        if new == 0:
            made = []
        elif output.outputs[0].finish_reason == "stop" and made and made[-1] in self.ends:
            made.pop()
        choice = {"index": 0, "token_ids": made, "finish_reason": output.outputs[0].finish_reason,
                  "logprobs": {"token_logprobs": logs} if scored else None}
        return {"object": "text_completion", "choices": [choice], "dpe": {"digest": digest},
                "usage": {"prompt_tokens": len(ids), "completion_tokens": len(made)}}

    async def sum_norms(self, body):
        from vllm import SamplingParams

        digest, ids = _plan_and_prompt(body)
        products, name = bool(body.get("products")), uuid.uuid4().hex
        self._check_length(len(ids) + 1)
        params = SamplingParams(max_tokens=1, temperature=0, detokenize=False, skip_reading_prefix_cache=True,
                                extra_args=Asked(dpe_plan=digest, dpe_norms=name, dpe_products=products))
        await self._run(ids, params)
        parts = await self.client.collective_rpc("dpe_pop_norms", args=(name,))
        config = self.config
        if not all(lists for *_, lists in parts):
            raise Refusal(500, "norms of some tokens are missing: too many texts at once", "norms_missing")
        if any(abs(factor - 1) > 1e-6 for _, factor, *_ in parts):
            raise Refusal(400, "norms: layers of this model rotate with a factor, which their norms would have")
        kinds = getattr(config, "layer_types", None) or []
        apart = {i for i, kind in enumerate(kinds) if kind == "linear_attention"}
        if config.model_type == "gemma4_text":  # heads of two sizes, and layers that have the keys of others
            apart = {i for i, kind in enumerate(kinds) if kind != "full_attention" or i >= len(kinds) - config.num_kv_shared_layers}
        rows, q, k = norms.join([(rank, lists) for rank, *_, lists in parts], config.num_hidden_layers, config.num_attention_heads,
                                parts[0][2], apart)
        if not all(math.isfinite(one) for one in q + k):
            raise Refusal(500, "a norm is not finite", "not_finite")
        return {"rows": rows, "q": q, "k": k, "dpe": {"digest": digest}}

    def _check_length(self, tokens):
        """vLLM makes answers shorter without a word."""
        if tokens > self.model.max_model_len:
            raise Refusal(400, f"expected at most {self.model.max_model_len} tokens (--max-model-len) of prompt and answer, found "
                               f"{tokens}", "context_length_exceeded")

    async def _run(self, ids, params):
        last = None
        digest = params.extra_args["dpe_plan"]
        with serving().running(digest) as salt:
            await self._hold(digest)
            prompt = {"prompt_token_ids": ids, "cache_salt": salt}
            async for output in self.client.generate(prompt, params, "dpe-" + uuid.uuid4().hex):
                last = output
        return last


def _end_tokens(model):
    """Those of config.json and generation_config.json, as the tools' engine reads them."""
    found = []
    for value in (getattr(model.hf_config, "eos_token_id", None), getattr(model.hf_text_config, "eos_token_id", None),
                  model.try_get_generation_config().get("eos_token_id")):
        found += value if isinstance(value, list) else [] if value is None else [value]
    return sorted(set(found))


def _plan_and_prompt(body):
    digest, ids = body.get("dpe_plan"), body.get("prompt")
    if not isinstance(digest, str):
        raise Refusal(400, "dpe_plan: expected the digest of a plan, a string")
    if digest not in serving().plans:
        raise Refusal(404, "dpe_plan: this server has no plan with that digest; give it with POST /v1/dpe/plan",
                      "plan_not_found")
    if not isinstance(ids, list) or not ids or not all(type(one) is int and one >= 0 for one in ids):
        raise Refusal(400, "prompt: expected a list of token ids")
    return digest, ids


class Routes:
    name = "dpe"
    required_tasks = ("generate",)

    def attach_router(self, app):
        from fastapi import HTTPException

        if not serving().entries and not serving().engine:
            return

        @app.get("/v1/dpe")
        def dpe(id: str | None = None):  # pylint: disable=redefined-builtin
            if id is None:
                return dict(serving().describe(), **(self.engine.about if serving().engine else {}))
            texts = serving().answers(id)
            if not texts:
                raise HTTPException(404, f"no answer {id!r} among the last ones: expected the id of an answer of this server")
            return {"id": id, "table": serving().describe().get("table"),
                    "texts": [{"id": name, "entry": entry, "digest": serving().entries.get(entry)}
                              for name, entry in texts.items()]}

        if serving().engine:
            self._attach_engine(app)

    def _attach_engine(self, app):
        from fastapi import Request
        from fastapi.responses import JSONResponse
        from vllm.entrypoints.serve.utils.api_utils import with_cancellation

        @with_cancellation
        async def answer(ask, raw_request, body):  # a client that leaves stops its text
            try:
                return JSONResponse(await ask(body))
            except Refusal as error:
                status, code = error.status, error.code
                reason = str(error)
            except (TableError, ValueError, RecursionError) as error:
                status, code, reason = 400, None, str(error)
            return JSONResponse({"error": {"message": reason, "code": code}}, status_code=status)

        def route(path, method):
            async def run(request: Request):
                try:
                    body = await (request.body() if method == "take_plan" else request.json())
                except (ValueError, RecursionError):
                    body = None
                if not isinstance(body, (dict, bytes)):
                    return JSONResponse({"error": {"message": "expected a JSON object", "code": None}}, status_code=400)
                return await answer(getattr(self.engine, method), request, body)

            app.post(path)(run)

        route("/v1/dpe/plan", "take_plan")
        route("/v1/dpe/completions", "complete")
        route("/v1/dpe/norms", "sum_norms")

    async def init_state(self, engine_client, state, args):
        if serving().engine:
            self.engine = Engine(engine_client, args)
