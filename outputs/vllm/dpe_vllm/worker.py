"""What each worker of an engine does for tools (DPE_ENGINE=1): vLLM's --worker-extension-cls, called by collective_rpc."""
from dpe_attention import TableError, load_table

from dpe_vllm.model import check_plan
from dpe_vllm.norms import TEXTS
from dpe_vllm.serving import serving


class Worker:
    """Mixed into vLLM's worker."""

    def dpe_take_plan(self, text, forgotten=()):
        """[reason, ""], what the plan, a table as JSON, is refused with, or ["", digest]. Those with the digests forgotten go."""
        runner = self.model_runner
        impl = runner.dpe_moved.one.impl
        serving().forget(forgotten)
        try:
            taken = load_table("the plan", data=text.encode())
            check_plan(runner, taken)
            serving().take(taken.digest, taken.plan)
            impl.take(runner.dpe_moved, [taken.digest])
        except TableError as error:
            return [str(error), ""]
        return ["", taken.digest]

    def dpe_pop_norms(self, name):
        """[rank among those that divide the heads, factor of a layer that changes norms, lists]; no lists: no such text."""
        moved, sums = self.model_runner.dpe_moved, TEXTS.pop(name)
        factor = max(moved.factors.values(), key=lambda one: abs(one - 1), default=1.0)
        return [moved.rank, factor, [] if sums is None else sums.lists()]
