"""What a server runs texts under, in each of its processes: the entries of a table, and plans that tools gave (DPE_ENGINE=1)."""
import collections
import contextlib
import hashlib
import logging
import os
import threading
import uuid

from dpe_attention import NOT_MEASURED, TableError, formula_lengths, load_table

logger = logging.getLogger("vllm.dpe")
MOST_REMEMBERED = 10000
MOST_TAKEN, MOST_BYTES = 4096, 64 << 20  # plans of tools


class NoRoom(TableError):
    """The tables of plans do not fit on the device beside each other."""


class Serving:
    """plans: by digest. entries: digests of the table's, by their lengths; none where DPE_TABLE names no table. Answers are
    remembered by the process that takes requests. formula: "auto", and when a model is known (hooks.py) its trained length and
    the longest text behind it; the plans themselves need the model's frequencies (bind)."""

    def __init__(self, path, formula=None):
        self.path, self.engine = path, os.environ.get("DPE_ENGINE") == "1"
        self.table, self.formula = load_table(path) if path else None, (formula or "").split()
        self.plans, self.entries, self.trained_length = {}, {}, 0
        if path and self.formula or self.formula[:1] not in ([], ["auto"]):
            raise TableError(f"DPE_PLAN={formula}: expected auto, and no DPE_TABLE beside it")
        if path:
            self.bind(self.table, [entry.digest for entry in self.table.entries])
        elif self.formula[1:]:
            self.trained_length, length = (int(one) for one in self.formula[1:])
            self.entries = {one: hashlib.sha256(f"formula {self.trained_length} {one}".encode()).hexdigest()
                            for one in formula_lengths(self.trained_length, length)}
        for entry in self.table.entries if path else ():
            if entry.evidence():
                logger.info("DPE: %s: it %s", path, entry.evidence())
        self._answers, self._lock = collections.OrderedDict(), threading.Lock()
        # Of the process that takes requests: bytes of a tool's plan, how many texts run under it, and the salt of what they leave in
        # the prefix cache, since a plan that comes again is another taking; unused for longest first.
        self._taken = collections.OrderedDict()

    def bind(self, table, digests):
        """The plans of a table's entries."""
        self.trained_length = table.trained_length
        for entry, digest in zip(table.entries, digests):
            self.entries[entry.evaluated_length], self.plans[digest] = digest, entry.plan

    def entry(self, prompt, new):
        """Length of the entry that runs a text of so many tokens (Table.choose), None: the model's own path."""
        tokens = prompt + (new or 0)
        if not self.entries or tokens <= self.trained_length:
            return None
        return min((length for length in self.entries if length >= tokens), default=max(self.entries))

    def digest(self, prompt, new, asked=None):
        """Of the plan that runs such a text, None: the model's own path. asked: the request's own (plan_asked)."""
        if asked is not None:
            return asked
        entry = self.entry(prompt, new)
        return None if entry is None else self.entries[entry]

    def salt(self, digest, salt):
        """What the prefix cache tells texts apart by. Beyond the first layer keys and values depend on the plan that ran, so
        those of one plan must not serve another; and keys that a plan moves are cached unrotated."""
        return salt if digest is None else f"dpe-{digest}{'' if salt is None else ' ' + salt}"

    def make_room(self, size):
        """For another plan of a tool's, of so many bytes: the digests of those that go for it, which nothing has run under for
        longest, and which the workers forget as well. None: texts run under as many as are kept."""
        idle = [digest for digest, (_, running, _) in self._taken.items() if not running]
        kept, held, gone = len(self._taken), sum(one for one, *_ in self._taken.values()), []
        while kept - len(gone) >= MOST_TAKEN or held + size > MOST_BYTES:
            if len(gone) == len(idle):
                return None
            gone.append(idle[len(gone)])
            held -= self._taken[gone[-1]][0]
        self.forget(gone)
        return gone

    def forget(self, digests):
        for digest in digests:
            self._taken.pop(digest, None)
            self.plans.pop(digest, None)

    def count(self, digest, size):
        """A tool's plan that the workers are given: it has its room from here on, so that they forget what they may have taken."""
        self._taken.setdefault(digest, [size, 0, uuid.uuid4().hex])

    def take(self, digest, plan):
        """A plan of a tool's, until it is forgotten."""
        self.plans.setdefault(digest, plan)

    @contextlib.contextmanager
    def running(self, digest):
        """While a text runs under a plan, that stays. The salt of its taking, None: of the table's own."""
        found = self._taken.get(digest, [0, 0, None])
        found[1] += 1
        if digest in self._taken:
            self._taken.move_to_end(digest)
        try:
            yield found[2]
        finally:
            found[1] -= 1

    def runs(self, digest):
        """Whether a text runs under a tool's plan."""
        return self._taken.get(digest, [0, 0])[1] > 0

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
        if self.formula[1:]:
            return {"plan": "auto", "trained_length": self.trained_length,
                    "entries": [{"length": length, "digest": digest, "evidence": NOT_MEASURED}
                                for length, digest in sorted(self.entries.items())]}
        if self.table is None:
            return {}
        return {"table": os.path.basename(self.path), "schema_version": self.table.schema_version,
                "model_type": self.table.model_type, "fingerprint": self.table.fingerprint,
                "trained_length": self.table.trained_length,
                "entries": [{"length": entry.evaluated_length, "digest": self.entries[entry.evaluated_length],
                             "evidence": entry.evidence()} for entry in self.table.entries]}


class Asked(dict):
    """The extra_args of a request that our own routes make. Requests of clients have plain dicts there, whatever their JSON says."""


def names_of_ours(extra):
    """The names in extra_args that only our routes may set, where another made them."""
    return [] if isinstance(extra, Asked) or not isinstance(extra, dict) else [name for name in extra if str(name).startswith("dpe_")]


def plan_asked(sampling_params):
    """The digest of the plan that a tool asks for, None: none."""
    return _text_asked(sampling_params, "dpe_plan")


def norms_asked(sampling_params):
    """The name of the sums that a tool asks for and their kind (norms.py), None: none."""
    name = _text_asked(sampling_params, "dpe_norms")
    return None if name is None else (name, bool(sampling_params.extra_args.get("dpe_products")))


def _text_asked(sampling_params, name):
    """Never an error: it is also asked while the model runs."""
    extra = getattr(sampling_params, "extra_args", None)
    found = extra.get(name) if isinstance(extra, dict) and serving().engine else None
    return found if isinstance(found, str) else None


_CURRENT = []


def serving():
    """Of this process. TableError says what is wrong with the table."""
    return _CURRENT[0] if _CURRENT else use(os.environ.get("DPE_TABLE"), os.environ.get("DPE_PLAN"))


def use(path, formula=None):
    """Take another table, or the formula, from here on, in this process alone. Texts that are running must have ended."""
    _CURRENT[:] = [Serving(path, formula)]
    return _CURRENT[0]


def folder_of(model_config):
    """Where the model's files are."""
    if os.path.isdir(model_config.model):
        return model_config.model
    from huggingface_hub import snapshot_download

    return snapshot_download(model_config.model, revision=model_config.revision, local_files_only=True)


def file_digest(path):
    """Of a whole file; of tokenizer.json: the tokenizer's fingerprint."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
