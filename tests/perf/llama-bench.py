"""Rates of llama.cpp on a model, measured as `cox bench` measures ours: prefill of arbitrary tokens, or greedy decode
after some context, of one or several sequences in one batch. Prints {"tokens_per_second": [of each run], "system"}.

    python3 llama-bench.py MODEL '{"test": "decode", "threads": 1, "tokens": 64}'

Further fields: depth (1: tokens of context before decode), streams (1), runs (1), warm (true: one run that is not
counted), flash (-1: llama.cpp chooses; 0 off, 1 on), cpu (null: the best; "haswell" holds it to AVX2).
"""
import json
import sys
import time

from llama_c import Llama

order = {"depth": 1, "streams": 1, "runs": 1, "warm": True, "flash": -1, "cpu": None, **json.loads(sys.argv[2])}
test, tokens, depth, streams = order["test"], order["tokens"], order["depth"], order["streams"]
length = tokens + 1 if test == "prefill" else depth + tokens + 1
llama = Llama(sys.argv[1], order["threads"], length, sequences=streams, flash=order["flash"], cpu=order["cpu"])
ordinary = min(llama.vocab_size, 40000)


def prompt(sequence, count):
    return [(i * 7919 + 13 + 101 * sequence) % ordinary for i in range(count)]


def fill(count):
    """Prefills every sequence; the best token of each comes with the last part of it."""
    firsts = []
    for sequence in range(streams):
        ids = prompt(sequence, count)
        for start in range(0, count, llama.batch_size):
            part = ids[start : start + llama.batch_size]
            last = start + len(part) == count
            llama.step([(token, start + i, sequence, last and i == len(part) - 1) for i, token in enumerate(part)])
        firsts.append(llama.sample(len(part) - 1))
    return firsts


def once():
    llama.clear()
    start = time.perf_counter()
    current = fill(tokens if test == "prefill" else depth)
    if test == "prefill":
        return tokens * streams / (time.perf_counter() - start)
    start = time.perf_counter()
    for i in range(tokens):
        llama.step([(token, depth + i, sequence, True) for sequence, token in enumerate(current)])
        current = [llama.sample(row) for row in range(streams)]
    return tokens * streams / (time.perf_counter() - start)


if order["warm"]:
    once()
rates = [once() for _ in range(order["runs"])]
print(json.dumps({"tokens_per_second": rates, "system": llama.system()}))
