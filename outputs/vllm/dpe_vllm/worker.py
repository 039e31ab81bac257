"""What each worker of an engine does for tools (DPE_ENGINE=1): vLLM's --worker-extension-cls, called by collective_rpc."""
from dpe_attention import TableError, load_table

from dpe_vllm.model import check_plan
from dpe_vllm.norms import TEXTS
from dpe_vllm.serving import NoRoom, serving


class Worker:
    """Mixed into vLLM's worker."""

    def dpe_hold(self, digest, beside, text=None, forgotten=()):
        """A plan and those beside which it runs are made ready. text: a table as JSON, where the plan is new; those with the digests
        forgotten go. [reason, whether there is no room beside the others, digests of what is ready]."""
        runner = self.model_runner
        serving().forget(forgotten)
        try:
            if text is not None:
                taken = load_table("the plan", data=text.encode())
                check_plan(runner, taken)
                if taken.digest != digest:
                    raise TableError("the processes of this server read the plan in different ways")
                serving().take(digest, taken.plan)
            return ["", False, runner.dpe_moved.one.impl.take(runner.dpe_moved, [digest, *beside])]
        except TableError as error:
            if text is not None:
                serving().plans.pop(digest, None)
            return [str(error), isinstance(error, NoRoom), []]

    def dpe_pop_norms(self, name):
        """[rank among those that divide the heads, factor of a layer that changes norms, KV heads of layers that move, lists]; no lists:
        no such text."""
        moved, sums = self.model_runner.dpe_moved, TEXTS.pop(name)
        factor = max(moved.factors.values(), key=lambda one: abs(one - 1), default=1.0)
        return [moved.rank, factor, moved.sizes["n_kv_heads"], [] if sums is None else sums.lists()]
