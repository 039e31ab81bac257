"""The table that a server runs with, the same in each of its processes."""
import collections
import logging
import os
import threading

from dpe_attention import load_table

logger = logging.getLogger("vllm.dpe")
MOST_REMEMBERED = 10000


class Serving:
    """What DPE_TABLE names. Answers are remembered by the process that takes requests."""

    def __init__(self, path):
        self.path = path
        self.table = load_table(path)
        self.plans = {entry.evaluated_length: entry.plan for entry in self.table.entries}
        self.digests = {length: plan.digest() for length, plan in self.plans.items()}
        for entry in self.table.entries:
            if entry.evidence():
                logger.info("DPE: %s: it %s", path, entry.evidence())
        self._answers, self._lock = collections.OrderedDict(), threading.Lock()

    def entry(self, prompt, new):
        """Length of the entry that runs a text of so many tokens, None: the model's own path."""
        entry = self.table.choose(prompt + (new or 0))
        return None if entry is None else entry.evaluated_length

    def salt(self, entry, salt):
        """What the prefix cache tells texts apart by. Beyond the first layer keys and values depend on the plan that ran, so
        those of one plan must not serve another; and keys that a plan moves are cached unrotated."""
        return salt if entry is None else f"dpe-{self.digests[entry]}{'' if salt is None else ' ' + salt}"

    def remember(self, name, entry):
        with self._lock:
            self._answers[name] = entry
            while len(self._answers) > MOST_REMEMBERED:
                self._answers.popitem(last=False)

    def answers(self, name):
        """Entries of the texts of a request, by their names in vLLM: cmpl-... has one for each prompt and choice."""
        with self._lock:
            return {full: entry for full, entry in self._answers.items()
                    if full == name or name in full and not full.replace(name, "", 1).strip("-_0123456789abcdef")}

    def describe(self):
        return {"table": os.path.abspath(self.path), "schema_version": self.table.schema_version,
                "model_type": self.table.model_type, "fingerprint": self.table.fingerprint,
                "trained_length": self.table.trained_length,
                "entries": [{"length": entry.evaluated_length, "digest": self.digests[entry.evaluated_length],
                             "evidence": entry.evidence()} for entry in self.table.entries]}


_CURRENT = []


def serving():
    """Of this process. TableError says what is wrong with the table."""
    return _CURRENT[0] if _CURRENT else use(os.environ["DPE_TABLE"])


def use(path):
    """Take another table from here on, in this process alone. Texts that are running must have ended."""
    _CURRENT[:] = [Serving(path)]
    return _CURRENT[0]
