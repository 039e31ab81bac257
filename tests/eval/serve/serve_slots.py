"""serve_slots.py BIN ROOT: what a slot of dpe-serve and a prompt of dpe-run hold goes into files and comes back with the same bits, after a restart too; files
that are damaged, or of another model, plan, type or key, are refused, and nothing stops the server."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from serve_case import Server  # noqa: E402

bin_folder, root = sys.argv[1:3]
model = os.path.join(root, "data/reference")
work = tempfile.mkdtemp()
with open(os.path.join(root, "data/sample/test/900000.txt"), encoding="utf-8") as file:
    TEXT = file.read()[:4000]
slots = os.path.join(work, "slots")
os.mkdir(slots)


def serve(*arguments, folder=slots):
    return Server(f"{bin_folder}/dpe-serve", "-m", model, "--threads", 2, "-l", 2048, "--slots", 2, "--slot-save-path", folder, *arguments)


def run(*words, code=0, prompt=None, folder=model, chunk="64"):
    text = os.path.join(work, "prompt.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write(prompt if prompt is not None else TEXT)
    ran = subprocess.run([f"{bin_folder}/dpe-run", "-m", folder, "--threads", "2", "--prompt-file", text, "--max-new", "24",
                          *(["--chunk", chunk] if chunk else []), *words], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == code, ran
    return ran.stdout if code == 0 else ran.stderr


def saved_parts(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return size, json.loads(file.read(size)), file.read()


def test_a_prompt_is_read_once():
    """The answer is the same from the file, and the file is not written again; a longer prompt goes on from it, another one in its place."""
    for kind in ("f32", "bf16", "int8"):
        cache = os.path.join(work, kind + ".safetensors")
        words = ["--kv-cache-dtype", kind, "--method", "self-extend:always=1", "--length", "2048"]
        whole = run(*words)
        assert run(*words, "--prompt-cache", cache) == whole
        before = os.stat(cache)
        assert run(*words, "--prompt-cache", cache) == whole
        assert os.stat(cache).st_mtime_ns == before.st_mtime_ns and os.stat(cache).st_ino == before.st_ino
        for other in (TEXT + " And then the king said", TEXT[:2000], "Once upon a time"):
            assert run(*words, "--prompt-cache", cache, prompt=other) == run(*words, prompt=other), other[:40]
    size, header, data = saved_parts(os.path.join(work, "f32.safetensors"))
    meta, tokens = header["__metadata__"], header["tokens"]
    assert size % 8 == 0 and meta["format"] == "dpe-cache" and tokens["shape"] == [int(meta["n"])] and int(meta["n"]) % 64 == 0
    assert max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__") == len(data)


def test_files_are_not_believed():
    """Every kind of damage is 65, whatever it is in, and another identity 78; the file stays as it is."""
    cache = os.path.join(work, "whole")
    run("--prompt-cache", cache)
    with open(cache, "rb") as file:
        good = file.read()
    size, header, _ = saved_parts(cache)
    middle = 8 + size + len(good) // 2
    damaged = [good[:n] for n in (0, 5, 8, 100, 8 + size, 8 + size + 40, len(good) // 2, len(good) - 1)] + [good + b"\0"]
    for place in (0, 7, 8, 60, 8 + size - 1, 8 + size + 1, middle, len(good) - 2):
        damaged.append(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1:])
    damaged.append(good.replace(b'"values.0"', b'"values.9"', 1))
    damaged.append(good.replace(b'"shape":[', b'"shape":[9', 1))
    first = 8 + size
    damaged.append(good[:first] + struct.pack("<i", 1 << 30) + good[first + 4:])
    damaged.append(good[:first] + good[first + 4:first + 8] + good[first:first + 4] + good[first + 8:])
    for i, data in enumerate(damaged):
        bad = os.path.join(work, "bad")
        with open(bad, "wb") as file:
            file.write(data)
        error = run("--prompt-cache", bad, code=65)
        assert "bad" in error, (i, error)
        with open(bad, "rb") as file:
            assert file.read() == data, i
    for words, word in ((["--method", "yarn", "--length", "4096", "--trained-length", "64"], "plan"), (["--kv-cache-dtype", "bf16"], "dtype"),
                        (["--chunk", "32"], "chunk")):
        error = run("--prompt-cache", cache, *words, code=78)
        assert word in error and "whole" in error, error
    with open(cache, "rb") as file:
        assert file.read() == good
    run("--prompt-cache", "/proc/none/x", code=73)
    os.mkfifo(os.path.join(work, "fifo"))
    run("--prompt-cache", os.path.join(work, "fifo"), code=73)
    assert not [name for name in os.listdir(work) if name.endswith(".tmp")]


def test_a_slot_outlives_the_server():
    """Saved, restored by another process, and gone on from; nothing of the prompt is read again, and the answer has the same bits."""
    ask = {"prompt": TEXT, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "logprobs": 3}
    longer = {**ask, "prompt": TEXT + " And"}
    with serve("--method", "self-extend") as server:
        first = server.ask("/v1/completions", ask)
        slot = 0 if server.raw("POST", "/slots/0?action=save", json.dumps({"filename": "a.bin"}))[0] == 200 else 1
        saved = server.ask(f"/slots/{slot}?action=save", {"filename": "a.bin"})
        assert saved["id_slot"] == slot and saved["filename"] == "a.bin" and saved["n_written"] == os.path.getsize(slots + "/a.bin"), saved
        assert server.metric("dpe_first_token_seconds_total") >= 0
        assert saved["n_saved"] == first["usage"]["total_tokens"] - 1 and saved["timings"]["save_ms"] > 0, (saved, first["usage"])
        again = server.ask("/v1/completions", longer)
    with serve("--method", "self-extend") as server:
        restored = server.ask("/slots/1?action=restore", {"filename": "a.bin"})
        assert (restored["n_restored"], restored["n_read"]) == (saved["n_saved"], saved["n_written"]), (restored, saved)
        other = server.ask("/v1/completions", longer)
        assert other["choices"][0]["logprobs"] == again["choices"][0]["logprobs"], (other, again)
        assert other["dpe"]["cached_tokens"] == again["dpe"]["cached_tokens"] > 500, (other["dpe"], again["dpe"])
        erased = server.ask("/slots/1?action=erase", None, "POST")
        assert erased == {"id_slot": 1, "n_erased": other["usage"]["total_tokens"] - 1}, erased
        assert server.ask("/v1/completions", longer)["dpe"]["cached_tokens"] == 0
        server.refused(400, "/slots/1?action=save&x=1", {"filename": "../b"})
        for name in ("", ".", "..", ".hidden", "a/b", "a.bin\0", "a.bin\0b", "x" * 129, 5, None):
            server.refused(400, "/slots/0?action=save", {"filename": name})
        server.refused(404, "/slots/0?action=restore", {"filename": "none"})
        server.refused(400, "/slots/7?action=erase", {})
        server.refused(404, "/slots/x?action=erase", {})
        server.refused(400, "/slots/0?action=eat", {"filename": "a"})
        assert server.refused(400, "/slots/0?action=save", {"filename": "a", "file": 1})["code"] == "unsupported_parameter"
        with open(slots + "/a.bin", "rb") as file:
            good = file.read()
        for i, data in enumerate((b"", good[:1000], good[:-1], good[:-9] + b"x" + good[-8:])):
            with open(slots + "/bad", "wb") as file:
                file.write(data)
            server.refused(400, "/slots/0?action=restore", {"filename": "bad"})
            assert server.ask("/v1/completions", ask)["choices"][0]["text"] == first["choices"][0]["text"], i
    with serve("--method", "rope") as server:
        assert "plan" in server.refused(400, "/slots/0?action=restore", {"filename": "a.bin"})["message"]
    with serve("--method", "self-extend", "--kv-cache-dtype", "int8") as server:
        assert "dtype" in server.refused(400, "/slots/0?action=restore", {"filename": "a.bin"})["message"]
    with Server(f"{bin_folder}/dpe-serve", "-m", model, "-l", 256) as server:
        server.refused(501, "/slots/0?action=restore", {"filename": "a.bin"})


def test_a_plan_of_a_client():
    """A slot that was filled under a plan that a client gave comes back under it."""
    plan = subprocess.run([f"{bin_folder}/dpe-run", "-m", model, "--show-plan", "--json", "--method", "self-extend:always=1", "-l", "2048"],
                          check=True, stdout=subprocess.PIPE).stdout
    with serve() as server:
        name = json.loads(server.raw("POST", "/v1/dpe/plan", plan)[2])["plan"]
        ask = {"dpe_plan": name, "prompt": TEXT[:800], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        first = server.ask("/v1/dpe/completions", ask)
        slot = [i for i in (0, 1) if server.raw("POST", f"/slots/{i}?action=save", json.dumps({"filename": "plan"}))[0] == 200][0]
        server.ask(f"/slots/{slot}?action=erase", {})
        restored = server.ask(f"/slots/{slot}?action=restore", {"filename": "plan"})
        assert restored["n_restored"] == first["usage"]["total_tokens"] - 1, (restored, first["usage"])
        again = server.ask("/v1/dpe/completions", ask)
        assert again["choices"] == first["choices"] and again["dpe"]["cached_tokens"] > 0, (again, first)


def test_whose_a_slot_is():
    """A key and a cache_salt have slots and files of their own."""
    keys = os.path.join(work, "keys")
    with open(keys, "w", encoding="utf-8") as file:
        file.write("sk-one\nsk-two\n")
    one, two = ({"Authorization": f"Bearer sk-{name}"} for name in ("one", "two"))
    with serve("--api-key-file", keys) as server:
        server.refused(401, "/slots/0?action=save", {"filename": "k"})
        server.ask("/v1/completions", {"prompt": TEXT[:800], "max_tokens": 2, "temperature": 0}, headers=one)
        there = [i for i in (0, 1) if server.raw("POST", f"/slots/{i}?action=save", json.dumps({"filename": "k"}), one)[0] == 200]
        assert len(there) == 1, there
        for i in (0, 1):
            assert server.ask(f"/slots/{i}?action=erase", {}, headers=two)["n_erased"] == 0
            server.refused(400, f"/slots/{i}?action=save", {"filename": "k"}, headers=two)
            error = server.refused(400, f"/slots/{i}?action=restore", {"filename": "k"}, headers=two)
            assert error["message"] == "k: was saved for another key or cache_salt; give another file", error
            server.refused(400, f"/slots/{i}?action=restore", {"filename": "k", "cache_salt": "s"}, headers=one)
        server.ask("/slots/1?action=restore", {"filename": "k"}, headers=one)
    with open(keys, "w", encoding="utf-8") as file: # whose it is does not depend on the order of the keys
        file.write("sk-two\nsk-new\nsk-one\n")
    with serve("--api-key-file", keys) as server:
        server.refused(400, "/slots/0?action=restore", {"filename": "k"}, headers=two)
        server.ask("/slots/0?action=restore", {"filename": "k"}, headers=one)


def test_one_file_for_both():
    """What dpe-run kept of a prompt a server restores, for anybody, and dpe-run what a server saved; of a key's text alone it is refused."""
    plan, cache = ["--method", "yarn:always=1", "--length", "2048"], os.path.join(slots, "shared")
    keys = os.path.join(work, "keys")
    whole = run(*plan, "--prompt-cache", cache, chunk=None)
    ask = {"prompt": TEXT, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    for more in ({}, {"headers": {"Authorization": "Bearer sk-two"}}):
        with serve("--method", "yarn:always=1", *(["--api-key-file", keys] if more else [])) as server:
            kept = server.ask("/slots/1?action=restore", {"filename": "shared"}, **more)["n_restored"]
            assert kept % 512 == 0 and server.ask("/v1/completions", ask, **more)["dpe"]["cached_tokens"] == kept >= 1024, kept
            server.ask("/slots/1?action=save", {"filename": "saved"}, **more)
        saved = os.path.join(slots, "saved")
        if more:
            assert "another key" in run(*plan, "--prompt-cache", saved, chunk=None, code=78)
        else:
            assert run(*plan, "--prompt-cache", saved, chunk=None) == whole
            assert run(*plan, "--prompt-cache", saved, chunk=None, prompt="Once upon") == run(*plan, prompt="Once upon", chunk="512")


try:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("passed", name, flush=True)
finally:
    shutil.rmtree(work)
