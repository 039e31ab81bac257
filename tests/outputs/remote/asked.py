#!/usr/bin/env python3
"""What a request can ask of the plugin for vLLM, without vLLM: asked.py OUTPUTS. Only our routes' requests have a plan and norms, and no
value that a client could send raises where the model runs. tests/vllm/names.py asks a real server. Exits with 125 when torch is not
there."""
import asyncio
import copy
import itertools
import os
import sys
from types import SimpleNamespace

try:
    import numpy as np
    import torch
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(125)

sys.path[:0] = [os.path.join(sys.argv[1], "transformers"), os.path.join(sys.argv[1], "vllm")]
from dpe_plan import DISTANCE, NO_END, Band, Map, Plan  # noqa: E402
from dpe_vllm import hooks, norms, routes, serving  # noqa: E402

NAMES = ("dpe_plan", "dpe_norms", "dpe_products", "dpe_later")
VALUES = ("x", 1, 2.5, True, None, ["x"], [1], [], {"a": "b"}, {}, [["x"]], b"x", ("x",), float("nan"))


def a_plan():
    true = Map(np.ones(4), np.zeros(4))
    return Plan([Band(DISTANCE, 0, NO_END, False, true, true)], 0.1 ** np.arange(4), (2, 2, 1, 8))


def engine(on):
    os.environ["DPE_ENGINE"] = "1" if on else "0"
    state, digest = serving.use(None), "0f" * 32
    state.take(digest, a_plan())
    return digest


def batch_of(extras):
    """Of a running model, as hooks.plans_of_batch reads it."""
    texts = {str(i): SimpleNamespace(num_prompt_tokens=9, pooling_params=None,
                                     sampling_params=SimpleNamespace(max_tokens=1, extra_args=extra)) for i, extra in enumerate(extras)}
    return SimpleNamespace(input_batch=SimpleNamespace(req_ids=list(texts)), requests=texts)


def test_names():
    for name, value in itertools.product(NAMES, VALUES):
        assert serving.names_of_ours({name: value, "other": 1}) == [name]
        assert serving.names_of_ours(serving.Asked({name: value})) == []
    assert serving.names_of_ours(None) == serving.names_of_ours({}) == serving.names_of_ours({"dpe": 1, "kv": "x"}) == []
    # vLLM copies what a route gives.
    assert type(copy.deepcopy(serving.Asked(dpe_plan="x"))) is serving.Asked


def test_batch():
    digest = engine(True)
    extras = [None, {}, {"dpe_plan": digest}, {"dpe_plan": digest, "dpe_norms": "n", "dpe_products": 1}, {"dpe_plan": "00" * 32}]
    plans, asked = hooks.plans_of_batch(batch_of(extras), 6)
    assert plans == [None, None, digest, digest, None, None] and asked == [None] * 3 + [("n", True)] + [None] * 2, (plans, asked)
    extras = [{name: value, other: again} for name, other in itertools.product(NAMES, NAMES)
              for value, again in itertools.product((digest, *VALUES), VALUES)]
    plans, asked = hooks.plans_of_batch(batch_of(extras), len(extras))
    assert all(plan is None or extra["dpe_plan"] == digest for plan, extra in zip(plans, extras)) and digest in plans
    assert all(one is None or type(one[0]) is str and plan == digest for one, plan in zip(asked, plans)) and any(asked)
    engine(False)
    plans, asked = hooks.plans_of_batch(batch_of(extras), len(extras))
    assert set(plans) == set(asked) == {None}, "a server that is no engine keeps sums"


def test_forgotten_plans():
    """However many plans tools give, the last ones are there, those that texts run under, and the table's own."""
    engine(True)
    state, plan, own = serving.serving(), a_plan(), "0f" * 32
    serving.MOST_TAKEN, serving.MOST_BYTES = 5, 100

    def give(name, size=1):
        gone = state.make_room(size)
        if gone is not None:
            state.count(name, size)
            state.take(name, plan)
        return gone

    assert [give(str(i)) for i in range(5)] == [[]] * 5 and own in state.plans
    with state.running("0"), state.running("0"):
        assert give("a") == ["1"] and give("b") == ["2"]
        with state.running("3"):
            pass
        assert give("c") == ["4"] and set(state.plans) == {own, "0", "3", "a", "b", "c"}
        assert give("large", 97) == ["a", "b"] and set(state.plans) == {own, "0", "3", "c", "large"}, state.plans
        assert give("larger", 100) is None and "large" in state.plans, "what is refused forgets nothing"
    assert give("larger", 100) is not None and set(state.plans) == {own, "larger"}
    assert give("too large", 101) is None and "larger" in state.plans
    with state.running("gone"):  # nothing is counted for a plan that is not a tool's
        assert give("x") == ["larger"]


class Client:
    """vLLM's, which takes plans when `go` is set and ends texts when `end` is: the plans of each call, and the prompts."""

    def __init__(self):
        self.go, self.end, self.told, self.prompts = asyncio.Event(), asyncio.Event(), [], []
        self.ready = set()

    async def collective_rpc(self, method, args):
        """As worker.dpe_hold: a plan that is not new is made ready again."""
        digest, _, *new = args
        self.told += [tuple(new)] if new else []
        await self.go.wait()
        self.ready = self.ready.difference(*new[1:]) | {digest}
        return [["bad" if digest == "refused" else "", False, list(self.ready)]]

    async def generate(self, prompt, params, name):
        self.prompts.append(prompt)
        await self.end.wait()
        yield name


async def takings():
    """While the processes of a server are given a plan, and while a text runs under one, no other takes its place; what they were
    given last and nobody can ask for is forgotten in its turn."""
    engine(True)
    state, serving.MOST_TAKEN, serving.MOST_BYTES = serving.serving(), 2, 1000
    server, client = routes.Engine.__new__(routes.Engine), Client()
    server.client, server.about, whole = client, {"model": "m"}, routes.load_table
    server.holding, server.held = asyncio.Lock(), set()
    routes.load_table = lambda _, data: SimpleNamespace(entries=[1], fingerprint="m", digest=data.decode(), plan=a_plan())

    async def status(ask):
        try:
            await ask
            return 200
        except routes.Refusal as error:
            return error.status
        except routes.TableError:
            return 400

    def give(name):
        return asyncio.create_task(status(server.take_plan(name.encode())))

    def run(name):
        return asyncio.create_task(server._run([5], SimpleNamespace(extra_args={"dpe_plan": name})))

    async def refused(name):
        return await give(name) == 503

    try:
        first, second = give("a"), give("b")
        await asyncio.sleep(0)
        assert await refused("c") and client.told == [("a", [])], client.told
        client.go.set()
        assert [await first, await second] == [200, 200] and {"a", "b"} <= set(state.plans)
        assert client.told[1:] == [("b", [])], "one after the other"
        client.go.clear()
        text = run("a")
        await asyncio.sleep(0)
        left = give("c")
        await asyncio.sleep(0)
        assert client.told[-1] == ("c", ["b"]) and await refused("d")
        left.cancel()  # its client has left: the processes have it, and nobody can ask for it
        await asyncio.wait([left])
        assert "c" not in state.plans and "a" in state.plans
        client.go.set()
        assert await give("refused") == 400 and client.told[-1] == ("refused", ["c"]) and "refused" not in state.plans
        assert await give("e") == 200 and client.told[-1] == ("e", ["refused"])
        client.end.set()
        assert await text
        assert await give("b") == 200 and client.told[-1] == ("b", ["a"]) and await give("a") == 200
        await asyncio.gather(run("a"), run("a"), run("0f" * 32))
        salts = [prompt.get("cache_salt") for prompt in client.prompts]
        assert salts[0] != salts[1] == salts[2] and salts[0] and salts[1] and salts[3] is None, salts
    finally:
        routes.load_table = whole


def test_takings():
    asyncio.run(asyncio.wait_for(takings(), 60))


def test_one_server():
    """Several processes that take requests would each forget plans by themselves."""
    settings = {"kv_cache_dtype": "auto", "data_parallel_size": 1, "worker_extension_cls": "", "_api_process_count": 1}
    for on, changed, words in ((True, {}, ""), (True, {"_api_process_count": 3}, "--api-server-count 3"), (False, {"_api_process_count": 3}, "")):
        engine(on)
        try:
            hooks.refuse_arguments(SimpleNamespace(**dict(settings, **changed)))
            found = ""
        except routes.TableError as error:
            found = str(error)
        assert words in found and bool(words) == bool(found), found


def test_sums():
    q, k = torch.randn(7, 2, 8), torch.randn(7, 1, 8)

    def of(*parts):
        sums = norms.Sums(False)
        for begin, end in parts:
            sums.add(0, begin, q[begin:end], k[begin:end])
        return sums.lists()

    whole = of((0, 7))
    for parts in (((0, 3), (3, 7)), ((0, 3), (0, 7)), ((0, 5), (2, 4), (4, 7))):
        assert [row[:2] for row in of(*parts)] == [[0, 7]]
        assert np.allclose(np.frombuffer(of(*parts)[0][2]), np.frombuffer(whole[0][2]), rtol=1e-12)
    assert of((3, 7)) == of((0, 2), (3, 7)) == of((3, 7), (0, 7)) == [], "sums of a text of which tokens are missing"


for test in (test_names, test_batch, test_forgotten_plans, test_takings, test_one_server, test_sums):
    test()
print("only our routes set a plan and norms, and nothing raises where the model runs")
