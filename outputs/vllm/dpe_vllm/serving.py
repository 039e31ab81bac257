"""The table that a server runs with, the same in each of its processes."""
import collections
import hashlib
import logging
import os
import threading

from dpe_attention import TableError, load_table

logger = logging.getLogger("vllm.dpe")
MOST_REMEMBERED = 10000


class Serving:
    """What DPE_TABLE names. Answers are remembered by the process that takes requests."""

    def __init__(self, path):
        self.path = path
        self.table = load_table(path)
        self.plans = {entry.evaluated_length: entry.plan for entry in self.table.entries}
        self.digests = {length: plan.digest() for length, plan in self.plans.items()}
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
                "entries": [{"length": length, "digest": digest} for length, digest in sorted(self.digests.items())]}


_CURRENT = []


def serving():
    """Of this process. TableError says what is wrong with the table."""
    return _CURRENT[0] if _CURRENT else use(os.environ["DPE_TABLE"])


def use(path):
    """Take another table from here on, in this process alone. Texts that are running must have ended."""
    _CURRENT[:] = [Serving(path)]
    return _CURRENT[0]


def fingerprint(folder):
    """Of a Hugging Face folder, as the engine computes it: config.json, name, size and header of each safetensors file, and
    256 blocks of 4096 bytes of its data (engine/model/model.c)."""
    import json

    digest = hashlib.sha256()
    with open(os.path.join(folder, "config.json"), "rb") as file:
        digest.update(file.read())
    index = os.path.join(folder, "model.safetensors.index.json")
    names = ["model.safetensors"]
    if os.path.exists(index) and not os.path.exists(os.path.join(folder, names[0])):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    shards = []
    for name in names:
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            header = int.from_bytes(file.read(8), "little")
            if header > size - 8:
                raise TableError(f"{path}: a header of {header} bytes in a file of {size}")
            digest.update(name.encode() + b"\0" + size.to_bytes(8, "little") + file.read(header))
        shards.append((path, 8 + header, size))
    for path, data, size in shards:
        stride = max((size - data) // 256, 4096)
        with open(path, "rb") as file:
            for at in range(data, size, stride):
                file.seek(at)
                digest.update(file.read(4096))
    return digest.hexdigest()
